"""Manual computations: what the program itself has written for one position along some axes of the mesh.

Inside, shapes are those of one such position, and layouts speak about the other, free axes. A device holds the same
elements on both sides of the border, so that crossing it costs nothing once the value outside is split by the manual
axes first: shard ``(m, f)`` of ``n`` elements is shard ``f`` of the ``n / m`` elements inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import Shape
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.rewrite.body import Body
from shardc.partitioner.rewrite.manual import entered_axes, left_axes
from shardc.partitioner.strategy.values import GlobalValue, Tree

__all__ = ["enter", "leave"]


def enter(body: Body, op: Instruction) -> Tree:
    """Values outside as values inside."""
    axes = entered_axes(op, body.context.table.mesh)
    values = []
    for operand, inner, wanted in zip(op.operands, op.shape.leaves(), body.wanted(op), strict=True):
        value = body.value(operand)
        whole, free = _sides(body, op, operand.leaf_shardings()[0], axes, value.shape, inner)
        local = body.get(value, whole, "the manual computation needs")
        values.append(GlobalValue(op.name, inner, free, local, wanted=wanted, metadata=op.metadata))
    return list(values) if op.shape.is_tuple else values[0]


def leave(body: Body, op: Instruction) -> Tree:
    """Values inside as values outside."""
    values = []
    leaves = zip(op.operands, op.shape.leaves(), op.leaf_shardings(), body.wanted(op), strict=True)
    for operand, outer, sharding, wanted in leaves:
        value = body.value(operand)
        axes = left_axes(op, operand, sharding, body.context.table.mesh)
        whole, free = _sides(body, op, sharding, axes, outer, value.shape)
        local = body.get(value, free, "the manual computation returns")
        values.append(GlobalValue(op.name, outer, whole, local, wanted=wanted, metadata=op.metadata))
    return list(values) if op.shape.is_tuple else values[0]


def _sides(
    body: Body, op: Instruction, sharding: Sharding, axes: Sequence[str], outer: Shape, inner: Shape
) -> tuple[AxisLayout, AxisLayout]:
    """The layouts of one value outside and inside that put the same elements on every device.

    ``sharding`` is that of the whole value, ``axes`` those that may be manual: the first of them in a dimension that
    cut it into as many parts as it is smaller inside. Free axes that do not divide a dimension inside evenly leave it
    whole. A value that is partial over manual axes is a value of its own inside.
    """
    table = body.context.table
    manual = set(table.atoms(map(AxisRef, axes)))
    given = table.from_sharding(sharding, f"%{op.name}")
    whole, free = [], []
    for n, part, atoms in zip(outer.dims, inner.dims, given.dims, strict=True):
        own = _cutting(table, [a for a in atoms if a in manual], n // part if part else 1)
        if part * table.extent(own) != n:
            raise UnsupportedError(
                f"{op.attrs['custom_call_target']} between {outer} and {inner}: the manual axes {', '.join(axes)} "
                f"split {n} into {table.extent(own)} parts",
                where=f"%{op.name}" + (f" ({op.source})" if op.source else ""),
                fix="let the sharding of the whole value name the manual axes that split it, and use even sizes",
            )
        rest = tuple(a for a in atoms if a not in manual)
        rest = () if table.is_uneven(rest, part) else rest
        whole.append(own + rest)
        free.append(rest)
    partial = [a for a in given.unreduced if a in manual]
    return table.layout(whole, partial, given.reduction), table.layout(free)


def _cutting(table: AxisTable, atoms: Sequence[int], parts: int) -> Atoms:
    """The first of ``atoms`` that cut into so many parts; those behind are how the whole value is wanted outside."""
    own: list[int] = []
    for a in atoms:
        if table.extent(own) >= parts:
            break
        own.append(a)
    return tuple(own)
