"""LAPACK calls whose matrices do not lie column by column.

A routine reads and writes memory, and takes every matrix for column-major and everything else for row-major. A call
whose layouts say otherwise means what the routine makes of these bytes; it is written as a call in the routine's own
layouts between transposes and reshapes. A call without layouts means the routine's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.types import Shape, tuple_shape

__all__ = ["expand_layouts", "has_other_layouts"]

Order = tuple[int, ...]


def has_other_layouts(call: Instruction) -> bool:
    """Whether this is a call to LAPACK with layouts that are not the routine's own."""
    return call.attrs["custom_call_target"] in LAPACK and any(
        not _same(shape, given, own) for shape, given, own in (*_operand_orders(call), *_result_orders(call))
    )


def expand_layouts(b: Builder, call: Instruction, *operands: Instruction) -> Instruction:
    """The call in the routine's own layouts, between moves of the bytes."""
    attrs = {k: v for k, v in call.attrs.items() if k != "operand_layout_constraints"}
    seen = [
        o if _same(shape, given, own) else _reread(b, o, given, own)
        for o, (shape, given, own) in zip(operands, _operand_orders(call), strict=True)
    ]
    inner = b.add("custom-call", *seen, shape=call.shape.plain, **attrs)
    parts = [inner]
    if call.shape.is_tuple:
        shapes = call.shape.plain.elements
        parts = [b.add("get-tuple-element", inner, shape=s, index=k) for k, s in enumerate(shapes)]
    results = [
        p if _same(shape, given, own) else _reread(b, p, own, given)
        for p, (shape, given, own) in zip(parts, _result_orders(call), strict=True)
    ]
    return (
        b.add("tuple", *results, shape=tuple_shape(*(r.shape for r in results))) if call.shape.is_tuple else results[0]
    )


def _operand_orders(call: Instruction) -> list[tuple[Shape, Order, Order]]:
    """Per operand its shape, the order of its dimensions in memory (outermost first), and the routine's own."""
    shapes = [o.shape for o in call.operands]
    return _orders(call, shapes, call.attrs.get("operand_layout_constraints", (None,) * len(shapes)))


def _result_orders(call: Instruction) -> list[tuple[Shape, Order, Order]]:
    shapes = list(call.shape.leaves())
    said = "operand_layout_constraints" in call.attrs
    return _orders(call, shapes, shapes if said else (None,) * len(shapes))


def _orders(
    call: Instruction, shapes: Sequence[Shape], given: Sequence[Shape | None]
) -> list[tuple[Shape, Order, Order]]:
    routine = LAPACK[call.attrs["custom_call_target"]]
    batch = call.operands[0].shape.rank - len(routine.operands[0])
    found = []
    for shape, wanted in zip(shapes, given, strict=True):
        plain = tuple(range(shape.rank))
        own = (*plain[:-2], plain[-1], plain[-2]) if shape.rank == batch + 2 else plain
        layout = None if wanted is None else wanted.layout
        order = own if wanted is None else plain if layout is None else tuple(reversed(layout.minor_to_major))
        found.append((shape, order, own))
    return found


def _same(shape: Shape, given: Order, own: Order) -> bool:
    """The same bytes: dimensions of one element lie anywhere."""
    return shape.size == 0 or [d for d in given if shape.dims[d] != 1] == [d for d in own if shape.dims[d] != 1]


def _reread(b: Builder, x: Instruction, written: Order, read: Order) -> Instruction:
    """What is read in one order of dimensions where ``x`` was written in another."""
    dims = x.shape.dims
    flat = b.add("transpose", x, dimensions=written)
    split = b.add("reshape", flat, shape=x.shape.with_dims(tuple(dims[d] for d in read)))
    return b.add("transpose", split, dimensions=tuple(read.index(d) for d in range(len(dims))))
