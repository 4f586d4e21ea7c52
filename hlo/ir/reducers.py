"""Reducers of one op: their neutral values, and whether the order of their steps matters."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import DType

__all__ = ["any_order", "extreme_of", "identity_of", "reducer_kind", "reducer_opcode"]

_BINARY = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
_KINDS = {"add": "sum", "maximum": "max", "minimum": "min"}


def reducer_opcode(body: Computation) -> str | None:
    """The opcode of a body that is just ``op(a, b)`` of its two parameters, where sums of arrays can be made of it."""
    root = body.root
    binary = root.opcode in _BINARY and len(body.parameters) == 2 and set(root.operands) == set(body.parameters)
    same = all(p.shape.dtype is root.shape.dtype for p in body.parameters)
    return root.opcode if binary and same else None


def reducer_kind(computation: Computation) -> str:
    """What a scalar computation combines its parameters with: ``sum``, ``max``, ``min``, an opcode, or empty.

    With several values it must combine each with its partner (parameters k and n + k) in the same way.
    """
    root, parameters = computation.root, computation.parameters
    parts = root.operands if root.opcode == "tuple" else (root,)
    n = len(parts)
    kinds = {part.opcode for part in parts}
    if len(parameters) != 2 * n or len(kinds) != 1 or not kinds <= _BINARY:
        return ""
    pairs = ({parameters[k], parameters[n + k]} for k in range(n))
    if any(set(part.operands) != pair for part, pair in zip(parts, pairs, strict=True)):
        return ""
    (opcode,) = kinds
    return _KINDS.get(opcode, opcode)


def extreme_of(dtype: DType, *, greatest: bool) -> Any:
    """The least (greatest) value of a type that is not complex: infinite, where the type has infinities."""
    if dtype.kind == "pred":
        return np.bool_(greatest)
    if not dtype.is_float:
        bounds = ml_dtypes.iinfo(dtype.numpy)
        return dtype.numpy.type(bounds.max if greatest else bounds.min)
    infinite = np.asarray(np.inf if greatest else -np.inf, np.float64).astype(dtype.numpy)
    if np.isinf(infinite.astype(np.float64)):
        return infinite[()]
    info = ml_dtypes.finfo(dtype.numpy)
    return info.max if greatest else info.min


def identity_of(reducer: Computation, dtype: DType) -> Any:
    """The neutral value of a one-op reducer such as add or maximum; None for any other."""
    root, parameters = reducer.root, reducer.parameters
    if len(parameters) != 2 or set(root.operands) != set(parameters) or (dtype.is_complex and root.opcode != "add"):
        return None
    if root.shape.dtype is not dtype:
        return None
    if dtype.kind == "pred":
        return {"or": False, "maximum": False, "add": False, "and": True, "minimum": True, "multiply": True}.get(
            root.opcode
        )
    if dtype.is_float:
        if root.opcode in ("maximum", "minimum"):
            return float(extreme_of(dtype, greatest=root.opcode == "minimum"))
        return {"add": -0.0, "multiply": 1.0}.get(root.opcode)
    if dtype.is_complex:
        return 0.0
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    high = (1 << (dtype.bits - (1 if dtype.kind == "signed" else 0))) - 1
    table = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "xor": 0}
    table["and"] = -1 if dtype.kind == "signed" else high
    return table.get(root.opcode)


def any_order(reducer: Computation, dtype: DType) -> bool:
    """Whether the reducer has a neutral value, and the order of its steps does not change a bit of the result."""
    exact = not (dtype.is_float or dtype.is_complex) or reducer.root.opcode in ("maximum", "minimum")
    return exact and identity_of(reducer, dtype) is not None
