"""Calls of Python: whose device makes them, and how the others have the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shardc.hlo.callbacks import EACH, LOCAL, marks, title_of
from shardc.hlo.ir import Computation, Instruction, Origin
from shardc.hlo.types import DTYPES, Shape, array_shape, tuple_shape
from shardc.partitioner.emitter import Emitter
from shardc.partitioner.layout import Layout
from shardc.partitioner.values import Tree, Value

if TYPE_CHECKING:
    from shardc.partitioner.body import Body

__all__ = ["partition_callback"]


def partition_callback(body: Body, op: Instruction) -> Tree:
    """In a manual computation each device calls, and what looks at shards looks at each device's own. Anything else is
    called by the first device, with whole values, and the others have its results from there."""
    table = body.context.table
    values = [body.value(o) for o in op.operands]
    if op.attrs["custom_call_target"] == LOCAL:
        layouts = [_even(body, v) for v in values]
    else:
        layouts = [table.replicated(v.shape.rank) for v in values]
    need = f"{title_of(op)} %{op.name} needs"
    operands = [body.get(v, x, need) for v, x in zip(values, layouts, strict=True)]
    shapes = tuple(op.shape.leaves())
    if EACH in marks(op) or op.attrs["custom_call_target"] == LOCAL or table.mesh.size == 1:
        made = body.em.append(op.replace(operands=tuple(operands), sharding=None), own=True)
        return body.disassemble(op, op.shape, made, iter([table.replicated(s.rank) for s in shapes]))
    made = _on_first(body, op, operands)
    parts = [made]
    if op.shape.is_tuple:
        parts = [body.em.add("get-tuple-element", s, made, index=k) for k, s in enumerate(op.shape.elements)]
    given = [_given(body, op, x) for x in parts]
    return given if op.shape.is_tuple else given[0]


def _given(body: Body, op: Instruction, x: Instruction) -> Value:
    """A result on all devices: the sum of the first one's and of what the others have."""
    em, table = body.em, body.context.table
    before, atoms = em.origin, tuple(range(table.count))
    reason = f"{title_of(op)} %{op.name} is called by the first device, and the others have its results from there"
    em.origin = Origin(reason, "callback", op.name, table.axis_names(atoms))
    whole = em.all_reduce(x, atoms, "max" if x.shape.dtype.kind == "pred" else "sum")
    em.origin = before
    return Value(op.name, x.shape, table.replicated(x.shape.rank), whole, metadata=op.metadata)


def _even(body: Body, value: Value) -> Layout:
    """As the value lies, but without padding."""
    table = body.context.table
    layout = table.reduced(value.layout)
    dims = [() if table.is_uneven(a, n) else a for a, n in zip(layout.dims, value.shape.dims, strict=True)]
    return table.layout(dims)


def _on_first(body: Body, op: Instruction, operands: list[Instruction]) -> Instruction:
    """The results on the first device of the mesh, and what adds nothing to them on the others."""
    em = body.em
    first = em.add(
        "compare", array_shape("pred"), em.coordinate(tuple(range(em.table.count))), em.index(0), direction="EQ"
    )
    given = em.add("tuple", tuple_shape(*(x.shape for x in operands)), *operands)
    inside = _branch(body, op, given.shape)
    elements = [inside.add("get-tuple-element", x.shape, inside.instructions[0], index=k) for k, x in enumerate(operands)]
    call = inside.append(op.replace(operands=tuple(elements), sharding=None), own=True)
    outside = _branch(body, op, given.shape)
    nothing = [outside.splat(outside.scalar(_nothing(s), s.dtype), s.dims) for s in op.shape.leaves()]
    root = outside.add("tuple", op.shape.plain, *nothing) if op.shape.is_tuple else nothing[0]
    branches = tuple(
        Computation(body.context.computation_names.own(f"{word}.{op.name}"), e.instructions, e_root)
        for word, e, e_root in (("call", inside, call), ("skip", outside, root))
    )
    return em.add(
        "conditional", op.shape.plain, first, given, given, true_computation=branches[0], false_computation=branches[1]
    )


def _branch(body: Body, op: Instruction, shape: Shape) -> Emitter:
    made = Emitter(body.em.table, body.em.reducers, body.em.names)
    made.metadata, made.origin = op.metadata, body.em.origin
    made.add("parameter", shape, index=0)
    return made


def _nothing(shape: Shape) -> Any:
    """What changes no bit of a number that it is added to: zero, the negative one where there is one."""
    kind = shape.dtype.numpy.type
    if shape.dtype.kind == "pred":
        return False
    zero = np.asarray(-0.0, np.float64).astype(shape.dtype.numpy)[()] if shape.dtype.is_float else kind(0)
    return kind(complex(-0.0, -0.0)) if shape.dtype in (DTYPES["c64"], DTYPES["c128"]) else zero

