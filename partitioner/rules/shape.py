"""Operations that move elements, and values made from nothing.

Constants, iotas and broadcast scalars are made afresh in whatever layout is asked for. Slices, pads, concatenations
and reversals run on shards along the dimensions that they leave alone, and need the others whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shardc.hlo.ir import Instruction
from shardc.hlo.literal import Literal
from shardc.partitioner.layout import Layout
from shardc.partitioner.rules.rule import Handled, Local, Row, Site
from shardc.partitioner.values import Tree, Value

if TYPE_CHECKING:
    from shardc.partitioner.body import Body

__all__ = ["RULES"]


def _constant(body: Body, op: Instruction) -> Tree:
    """A splat in any layout; other constants are whole and cut on demand."""
    literal: Literal = op.attrs["literal"]
    if op.shape.is_tuple:
        parts = zip(literal.elements or (), op.shape.elements, strict=True)
        return [
            _constant(body, Instruction("constant", s, (), {"literal": x}, name=op.name, metadata=op.metadata))
            for x, s in parts
        ]
    whole = body.context.table.replicated(op.shape.rank)
    if not op.shape.rank or not literal.is_splat:
        local = body.em.add("constant", op.shape, name=op.name, literal=literal)
        return Value(op.name, op.shape, whole, local)

    def remake(layout: Layout) -> Instruction:
        dims = body.context.table.local_dims(layout, op.shape.dims)
        return body.em.splat(body.em.scalar(literal.splat, op.shape.dtype), dims)

    return Value(op.name, op.shape, whole, None, remake=remake)


def _iota(body: Body, op: Instruction) -> Tree:
    """Every device counts from its own offset."""
    dim = op.attrs["iota_dimension"]
    table = body.context.table

    def remake(layout: Layout) -> Instruction:
        local = table.local_dims(layout, op.shape.dims)
        return body.em.global_index(local, dim, layout.dims[dim], op.shape.dtype)

    return Value(op.name, op.shape, table.replicated(op.shape.rank), None, remake=remake)


def _broadcast(body: Body, op: Instruction) -> Tree:
    """A broadcast whose operand is whole on every device can be made in any layout of its new dimensions."""
    operand = body.value(op.operands[0])
    if op.operands[0].shape.rank or operand.layout.unreduced:
        return body.partition_locally(op, _BROADCAST)
    scalar = body.get(operand, operand.layout, "broadcast needs")
    table = body.context.table

    def remake(layout: Layout) -> Instruction:
        return body.em.splat(scalar, table.local_dims(layout, op.shape.dims))

    return Value(op.name, op.shape, table.replicated(op.shape.rank), None, remake=remake)


def _slice(site: Site) -> list[Instruction]:
    """Dimensions that are taken whole keep their local size."""
    local = site.local_shape().dims
    bounds = tuple((0, local[d], 1) if site.operand_atoms(0, d) else b for d, b in enumerate(site.op.attrs["slice"]))
    return site.emit(slice=bounds)


def _movement(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


def _all_operands(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(len(op.operands))),)


def _zero_padding(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    value = op.operands[1]
    zero = value.opcode == "constant" and value.attrs["literal"].splat == 0
    return ((0,),) if zero and reduction == "sum" else ()


_BROADCAST = Local("on shards", linear=_movement)
_MOVED = "on shards, moved dimensions whole"

RULES: Mapping[str, Row] = {
    "broadcast": Handled("made in any layout, or on shards", _broadcast),
    "reshape": Local("on shards", linear=_movement),
    "bitcast": Local("on shards", linear=_movement),
    "transpose": Local("on shards", linear=_movement),
    "concatenate": Local(_MOVED, linear=_all_operands),
    "slice": Local(_MOVED, _slice, linear=_movement),
    "pad": Local(_MOVED, linear=_zero_padding),
    "reverse": Local(_MOVED, linear=_movement),
    "iota": Handled("made in any layout", _iota),
    "constant": Handled("splats made in any layout, others cut on demand", _constant),
    "get-dimension-size": Local("whole operands"),
    "set-dimension-size": Local("whole operands"),
    "dynamic-reshape": Local("whole operands"),
}
