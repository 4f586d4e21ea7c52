"""Sums of narrow floats over a loop, kept in f32 while they are partial.

Partial sums in bf16 or f16 would lose more than whole ones do: each device rounds its own. A loop that adds up partial
values therefore carries them in f32, and rounds once at its end; what is reduced behind it is narrow again.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.ir import Computation, Instruction, rebuild_computation
from shardc.hlo.ir.types import DTYPES, DType, Shape, tuple_shape
from shardc.partitioner.emit.layout import AxisLayout

__all__ = ["as_type", "can_be_partial", "is_narrow", "widen_sums"]

_WIDE = DTYPES["f32"]
#: What moves partial values, each of which was rounded when it was made.
_MOVES = frozenset(
    ("copy", "reshape", "transpose", "reverse", "select", "slice", "dynamic-slice", "dynamic-update-slice", "convert")
)
#: What gives a sum in f32 when its partial operands and whatever else it computes with are f32.
_SUMS = frozenset(["add", "subtract", "negate", "multiply", "divide"])


def is_narrow(dtype: DType) -> bool:
    """Whether the type is a float that f32 holds exactly."""
    return dtype.is_float and dtype.bits < _WIDE.bits


def can_be_partial(op: Instruction, element: int) -> bool:
    """Whether narrow floats in an element of a loop's state may be partial sums: only moved, or added up in f32."""
    return _sums(op.attrs["body"], (element,)) is not None


def widen_sums(op: Instruction, layouts: Sequence[AxisLayout]) -> Instruction:
    """The loop with its partial sums of narrow floats in f32; the loop itself where it has none.

    ``layouts`` are those of its state, partial only where it `can_be_partial`.
    """
    elements = [
        k
        for k, (s, x) in enumerate(zip(op.shape.leaves(), layouts, strict=True))
        if x.unreduced and x.reduction == "sum" and is_narrow(s.dtype) and _adds_up(op, k)
    ]
    if not elements:
        return op
    shape = tuple_shape(*(s.with_dtype(_WIDE) if k in elements else s for k, s in enumerate(op.shape.elements)))
    sums = _sums(op.attrs["body"], elements)
    assert sums is not None, f"%{op.name} adds up in ways that cannot be widened"
    body = _rebuilt(op.attrs["body"], sums, shape)
    condition = _rebuilt(op.attrs["condition"], set(), shape)
    return op.replace(shape=shape, attrs={**op.attrs, "condition": condition, "body": body})


def as_type(x: Instruction, dtype: DType) -> Instruction:
    """``x`` converted, lying as it does; ``x`` itself where it has that type."""
    if x.shape.dtype is dtype:
        return x
    return Instruction(
        "convert", x.shape.with_dtype(dtype), (x,), sharding=x.sharding, metadata=x.metadata, origin=x.origin
    )


def _adds_up(op: Instruction, element: int) -> bool:
    found = _sums(op.attrs["body"], (element,))
    return found is None or any(i.opcode in _SUMS for i in found)


def _sums(body: Computation, elements: Sequence[int]) -> set[Instruction] | None:
    """The elements as they are read, and all that follows linearly from them; None if some cannot be f32."""
    (parameter,) = body.parameters
    found: set[Instruction] = set()
    for i in body:
        if i.opcode == "get-tuple-element" and i.operands[0] is parameter and i.attrs["index"] in elements:
            found.add(i)
        elif not found.isdisjoint(i.operands) and i is not body.root:
            if not _keeps_type(i):
                return None
            found.add(i)
    return found


def _keeps_type(i: Instruction) -> bool:
    known = i.opcode in _MOVES or i.opcode in _SUMS or i.attrs.get("custom_call_target") == "Sharding"
    floats = [o.shape.dtype for o in i.operands if o.shape.is_array and o.shape.dtype.is_float]
    return known and i.shape.is_array and all(t is i.shape.dtype for t in floats)


def _rebuilt(computation: Computation, sums: set[Instruction], shape: Shape) -> Computation:
    (parameter,) = computation.parameters

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old is parameter:
            return old.replace(shape=shape)
        if old in sums and operands[0].opcode == "parameter":
            return old.replace(operands=operands, shape=old.shape.with_dtype(_WIDE))
        if old in sums:
            wide = tuple(as_type(o, _WIDE) if o.shape.is_array and is_narrow(o.shape.dtype) else o for o in operands)
            return old.replace(operands=wide, shape=old.shape.with_dtype(_WIDE))
        if old is computation.root and sums:
            ends = tuple(as_type(o, s.dtype) for o, s in zip(operands, shape.elements, strict=True))
            return old.replace(operands=ends, shape=shape)
        return None

    return rebuild_computation(computation, change)
