"""Identities of elementwise ops. Float rules are exact for every bit pattern, NaNs and signed zeros included."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import broadcast_scalar, make, scalar_value, splat_source
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DType

__all__ = ["RULES"]


def _is(instruction: Instruction, value: float) -> bool:
    found = scalar_value(instruction)
    if found is None:
        return False
    same = bool(found == value)
    if same and value == 0 and instruction.shape.dtype.is_float:
        return bool(np.signbit(np.float64(found)) == np.signbit(value))
    return same


def add_zero(i: Instruction) -> Instruction | None:
    zero = -0.0 if i.shape.dtype.is_float else 0
    if i.shape.dtype.is_complex or i.shape.dtype.kind == "pred":
        return None
    a, b = i.operands
    return a if _is(b, zero) else b if _is(a, zero) else None


def subtract_zero(i: Instruction) -> Instruction | None:
    a, b = i.operands
    return a if not i.shape.dtype.is_complex and _is(b, 0.0) else None


def multiply_by_one(i: Instruction) -> Instruction | None:
    if i.shape.dtype.is_complex:
        return None
    a, b = i.operands
    return a if _is(b, 1) else b if _is(a, 1) else None


def multiply_integer_by_zero(i: Instruction) -> Instruction | None:
    if not i.shape.dtype.is_integer:
        return None
    a, b = i.operands
    return a if _is(a, 0) else b if _is(b, 0) else None


def divide_by_one(i: Instruction) -> Instruction | None:
    a, b = i.operands
    return a if not i.shape.dtype.is_complex and _is(b, 1) else None


def _all_ones(i: Instruction) -> bool:
    kind = i.shape.dtype.kind
    return (kind == "pred" and _is(i, True)) or (kind == "signed" and _is(i, -1))


def logical_identity(i: Instruction) -> Instruction | None:
    """x and ones, x or zeros, x and x, x or x."""
    a, b = i.operands
    if a is b:
        return a
    neutral = _all_ones if i.opcode == "and" else lambda x: _is(x, 0)
    absorbing = (lambda x: _is(x, 0)) if i.opcode == "and" else _all_ones
    if neutral(b) or absorbing(a):
        return a
    return b if neutral(a) or absorbing(b) else None


def twice_is_nothing(i: Instruction) -> Instruction | None:
    """not(not(x)), negate(negate(x))."""
    inner = i.operands[0]
    return inner.operands[0] if inner.opcode == i.opcode else None


def choose_known_select(i: Instruction) -> Instruction | None:
    predicate, on_true, on_false = i.operands
    if on_true is on_false:
        return on_true
    value = scalar_value(predicate)
    return None if value is None else on_true if value else on_false


def convert_to_same(i: Instruction) -> Instruction | None:
    return i.operands[0] if i.operands[0].shape.dtype is i.shape.dtype else None


def convert_of_widening(i: Instruction) -> Instruction | None:
    """convert(convert(x)) is one convert when the inner one loses nothing."""
    inner = i.operands[0]
    if inner.opcode != "convert":
        return None
    source = inner.operands[0]
    if not _holds_all(inner.shape.dtype, source.shape.dtype):
        return None
    return make("convert", i.shape, (source,), i)


#: Significand and exponent bits of the float types that rules reason about.
_FLOATS: Mapping[str, tuple[int, int]] = {"bf16": (8, 8), "f16": (11, 5), "f32": (24, 8), "f64": (53, 11)}


def _holds_all(wide: DType, narrow: DType) -> bool:
    """Whether ``wide`` represents every value of ``narrow``, and conversions out of it agree."""
    if narrow.kind == "pred":
        return wide.is_integer or wide.name in _FLOATS
    if narrow.name in _FLOATS and wide.name in _FLOATS:
        return all(w >= n for w, n in zip(_FLOATS[wide.name], _FLOATS[narrow.name], strict=True))
    if narrow.is_integer and wide.is_integer:
        if narrow.kind == wide.kind:
            return wide.bits >= narrow.bits
        return narrow.kind == "unsigned" and wide.bits > narrow.bits
    return False


def bitcast_convert_to_same(i: Instruction) -> Instruction | None:
    return i.operands[0] if i.operands[0].shape.plain == i.shape.plain else None


def compute_splat_once(i: Instruction) -> Instruction | None:
    """An elementwise op on splats is the splat of the op on scalars."""
    if not i.shape.dims or not i.operands or not i.shape.is_array:
        return None
    sources = [splat_source(o) for o in i.operands]
    if any(s is None for s in sources) or i.opcode in ("map", "bitcast-convert", "stochastic-convert"):
        return None
    scalars = tuple(s for s in sources if s is not None)
    return broadcast_scalar(make(i.opcode, i.shape.with_dims(()), scalars, i, **i.attrs), i.shape.dims, i)


def map_is_elementwise(i: Instruction) -> Instruction | None:
    """A map over arrays is its computation with every scalar widened."""
    widened: dict[Instruction, Instruction] = {}
    dims = i.shape.dims
    for inner in i.attrs["to_apply"]:
        if inner.opcode == "parameter":
            widened[inner] = i.operands[inner.attrs["index"]]
        elif inner.opcode == "constant":
            widened[inner] = broadcast_scalar(inner, dims, i)
        elif OPS[inner.opcode].family == "elementwise" and inner.opcode != "map":
            operands = tuple(widened[o] for o in inner.operands)
            widened[inner] = make(inner.opcode, inner.shape.with_dims(dims), operands, i, **inner.attrs)
        else:
            return None
    return widened[i.attrs["to_apply"].root]


_SPECIFIC: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    "add": (add_zero,),
    "subtract": (subtract_zero,),
    "multiply": (multiply_by_one, multiply_integer_by_zero),
    "divide": (divide_by_one,),
    "and": (logical_identity,),
    "or": (logical_identity,),
    "not": (twice_is_nothing,),
    "negate": (twice_is_nothing,),
    "select": (choose_known_select,),
    "convert": (convert_to_same, convert_of_widening),
    "map": (map_is_elementwise,),
    "bitcast-convert": (bitcast_convert_to_same,),
}

RULES: Mapping[str, tuple[Callable[[Instruction], Instruction | None], ...]] = {
    opcode: (*_SPECIFIC.get(opcode, ()), compute_splat_once)
    for opcode, row in OPS.items()
    if row.family == "elementwise"
}
