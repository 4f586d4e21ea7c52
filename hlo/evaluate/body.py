"""Computations over scalars, applied to whole arrays at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from shardc.hlo.evaluate.interpreter import Interpreter
from shardc.hlo.evaluate.values import Array, Value
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.hlo.ir.opset import OPS

__all__ = ["MONOIDS", "apply_body", "fold", "fold_in_order", "passed_parameter"]

#: The opcodes of `reducer_opcode` with the NumPy function that does them at once.
MONOIDS: Mapping[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_PLUMBING = ("parameter", "constant", "tuple", "get-tuple-element", "call", "fusion", "reshape", "broadcast", "bitcast")


def passed_parameter(body: Computation) -> int | None:
    """The number of the parameter that a body returns unchanged; None if it computes."""
    return int(body.root.attrs["index"]) if body.root.opcode == "parameter" else None


def _is_scalar_op(m: Interpreter, i: Instruction) -> bool:
    if not all(leaf.is_array and leaf.rank == 0 for leaf in i.shape.leaves()):
        return False
    if any(not _works_on_arrays(m, callee) for _, callee in called_computations(i)):
        return False
    return i.opcode in _PLUMBING or OPS[i.opcode].family == "elementwise"


def _works_on_arrays(m: Interpreter, body: Computation) -> bool:
    key = ("works on arrays", body)
    if key not in m.memo:
        m.memo[key] = all(_is_scalar_op(m, i) for i in body)
    return bool(m.memo[key])


def apply_body(m: Interpreter, body: Computation, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a scalar computation for every element of its (broadcast) arguments."""
    if _works_on_arrays(m, body):
        return _as_tuple(m.run_one(body, arguments))
    whole = np.broadcast_arrays(*arguments)
    shapes = list(body.root.shape.leaves())
    out = [np.empty(whole[0].shape, m.storage_type(s.dtype)) for s in shapes]
    for index in np.ndindex(whole[0].shape):
        for o, v in zip(out, _as_tuple(m.run_one(body, [a[index] for a in whole])), strict=True):
            o[index] = v
    return tuple(out)


def _as_tuple(value: Value) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else (value,)


def fold(m: Interpreter, body: Computation, arrays: Sequence[Array], inits: Sequence[Array]) -> tuple[Array, ...]:
    """Reduce the leading dimension of ``arrays``: neighbours are combined in order, then the initial value joins.

    The body must be associative, as HLO demands; then log2(n) evaluations on whole arrays do.
    """
    kinds = [m.storage_type(p.shape.dtype) for p in body.parameters[: len(inits)]]
    values = [a.astype(k, copy=False) for a, k in zip(arrays, kinds, strict=True)]
    dims = arrays[0].shape[1:]
    while values[0].shape[0] > 1:
        even = values[0].shape[0] // 2 * 2
        combined = apply_body(m, body, [*(v[0:even:2] for v in values), *(v[1:even:2] for v in values)])
        values = [
            np.concatenate([np.broadcast_to(c, (even // 2, *dims)).astype(k, copy=False), v[even:]])
            for c, v, k in zip(combined, values, kinds, strict=True)
        ]
    start = [np.broadcast_to(np.asarray(s).astype(k, copy=False), dims) for s, k in zip(inits, kinds, strict=True)]
    if values[0].shape[0] == 0:
        return tuple(start)
    results = apply_body(m, body, [*start, *(v[0] for v in values)])
    return tuple(np.broadcast_to(r, dims) for r in results)


def fold_in_order(
    m: Interpreter,
    body: Computation,
    steps: Iterable[Sequence[Array]],
    inits: Sequence[Array],
    dims: Sequence[int],
    taking: Iterable[Array] | None = None,
) -> tuple[Array, ...]:
    """Combine arrays of shape ``dims`` one after the other, starting from the initial values, rounding each time.

    ``taking`` gives a mask per step: elsewhere the step changes nothing.
    """
    kinds = [m.storage_type(leaf.dtype) for leaf in body.root.shape.leaves()]
    values = [np.broadcast_to(np.asarray(s).astype(k, copy=False), dims) for s, k in zip(inits, kinds, strict=True)]
    for arrays, mask in zip(steps, repeat(None) if taking is None else taking, strict=False):
        given = [a.astype(k, copy=False) for a, k in zip(arrays, kinds, strict=True)]
        results = [np.broadcast_to(r, dims) for r in apply_body(m, body, [*values, *given])]
        if mask is not None:
            results = [np.where(mask, r, v) for r, v in zip(results, values, strict=True)]
        values = [r.astype(k, copy=False) for r, k in zip(results, kinds, strict=True)]
    return tuple(values)
