"""What calls into libraries, as XLA's dumps have them, compute: the operation that they stand for.

Matrix products carry their dimension numbers in ``backend_config``; convolutions have the window and the labels of the
forward convolution, also those that compute a gradient. Shapes are all that is wanted: the operations found here are
priced, never run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["equivalent_call"]


def equivalent_call(i: Instruction) -> Instruction | None:
    """The dot or convolution that the custom call ``i`` stands for, with its name and metadata; None for all others.

    Example: ``__cublas$gemm`` of ``f32[8,16]`` and ``f32[16,4]`` is a dot, whatever workspace it returns besides.
    """
    target = str(i.attrs.get("custom_call_target", ""))
    make = next((make for prefix, make in _CALLS.items() if target.startswith(prefix)), None)
    shapes = [s for s in i.shape.leaves() if s.is_array]
    if make is None or len(i.operands) < 2 or not shapes:
        return None
    return make(i, shapes[0])


def _product(i: Instruction, result: Shape) -> Instruction | None:
    """Bias, scales and a matrix to add are read besides."""
    config = _config(i)
    inner: Any = config.get("gemm_backend_config", config)
    given = inner.get("dot_dimension_numbers") if isinstance(inner, dict) else None
    left, right = (o.shape for o in i.operands[:2])
    if isinstance(given, dict):
        batch, other = (_numbers(given, f"{side}_batch_dimensions") for side in ("lhs", "rhs"))
        k, m = (_numbers(given, f"{side}_contracting_dimensions") for side in ("lhs", "rhs"))
    elif left.is_array and right.is_array and left.rank == right.rank >= 2:
        one, two = (bool(_matmul_flag(config, f"transpose_{side}")) for side in "ab")
        batch = other = tuple(range(left.rank - 2))
        k, m = (left.rank - 1 - one,), (left.rank - 2 + two,)
    else:
        return None
    attrs: dict[str, Any] = {"lhs_contracting_dims": k, "rhs_contracting_dims": m}
    attrs |= {"lhs_batch_dims": batch, "rhs_batch_dims": other}
    precision = inner.get("precision_config", {}) if isinstance(inner, dict) else {}
    if isinstance(precision, dict) and precision.get("operand_precision"):
        attrs["operand_precision"] = tuple(str(p).lower() for p in precision["operand_precision"])
    return _priced(i, "dot", result, i.operands, attrs)


def _matmul_flag(config: Mapping[str, Any], name: str) -> object:
    inner = next((v for k, v in config.items() if k.endswith("matmul_config") and isinstance(v, dict)), {})
    return inner.get(name, False)


def _forward(i: Instruction, result: Shape) -> Instruction | None:
    return _convolution(i, result, i.operands)


def _of_input(i: Instruction, result: Shape) -> Instruction | None:
    """The gradient of the input takes as much as the convolution whose input is like it."""
    gradient, kernel, *rest = i.operands
    return _convolution(i, gradient.shape, (_like(result, "input"), kernel, *rest))


def _of_filter(i: Instruction, result: Shape) -> Instruction | None:
    data, gradient, *rest = i.operands
    return _convolution(i, gradient.shape, (data, _like(result, "filter"), *rest))


def _convolution(i: Instruction, result: Shape, operands: tuple[Instruction, ...]) -> Instruction | None:
    kept = ("window", "dim_labels", "feature_group_count", "batch_group_count")
    attrs = {k: i.attrs[k] for k in kept if k in i.attrs}
    return _priced(i, "convolution", result, operands, attrs) if "dim_labels" in attrs else None


def _like(shape: Shape, name: str) -> Instruction:
    return Instruction("parameter", shape.plain, (), MappingProxyType({"index": 0}), name=name)


def _priced(
    i: Instruction, opcode: str, shape: Shape, operands: tuple[Instruction, ...], attrs: Mapping[str, Any]
) -> Instruction:
    made = MappingProxyType(dict(attrs))
    return Instruction(opcode, shape.plain, operands, made, name=i.name, metadata=i.metadata, origin=i.origin)


def _config(i: Instruction) -> Mapping[str, Any]:
    """``backend_config`` as JSON; empty where it is something else."""
    try:
        found = json.loads(str(i.attrs.get("backend_config") or "{}"))
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(given: Mapping[str, Any], key: str) -> tuple[int, ...]:
    return tuple(int(n) for n in given.get(key, ()))


_CALLS: Mapping[str, Callable[[Instruction, Shape], Instruction | None]] = MappingProxyType(
    {
        "__cublas$gemm": _product,
        "__cublas$lt$matmul": _product,
        "__onednn$matmul": _product,
        "__cudnn$convForward": _forward,
        "__cudnn$convBiasActivationForward": _forward,
        "__cudnn$convBackwardInput": _of_input,
        "__cudnn$convBackwardFilter": _of_filter,
        "__onednn$convolution": _forward,
    }
)
