"""Calls of Python: whose device makes them, and how the others have the results."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.callbacks import EACH, LOCAL, marks, title_of
from shardc.hlo.ir.ir import Computation, Instruction, Origin
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.rewrite.body import Body
from shardc.partitioner.strategy.values import GlobalValue, Tree

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
    words = iter([_everywhere(body, op, x) for x in _on_first(body, op, operands)])
    whole = [table.replicated(s.rank) for s in shapes]
    results = [_from_words(body.em, s, words) for s in shapes]
    given: list[Tree] = [
        GlobalValue(op.name, x.shape, w, x, metadata=op.metadata) for x, w in zip(results, whole, strict=True)
    ]
    return given if op.shape.is_tuple else given[0]


def _everywhere(body: Body, op: Instruction, word: Instruction) -> Instruction:
    """What the first device has, where the others have zero."""
    em, atoms = body.em, tuple(range(body.context.table.count))
    before = em.origin
    reason = f"the first device calls {title_of(op)} %{op.name} and sends its results to the others"
    em.origin = Origin(reason, "callback", op.name, em.table.axis_names(atoms))
    whole = em.all_reduce(word, atoms, "max" if word.shape.dtype.kind == "pred" else "sum")
    em.origin = before
    return whole


def _even(body: Body, value: GlobalValue) -> AxisLayout:
    """As the value lies, but without padding."""
    table = body.context.table
    layout = table.reduced(value.layout)
    dims = [() if table.is_uneven(a, n) else a for a, n in zip(layout.dims, value.shape.dims, strict=True)]
    return table.layout(dims)


def _on_first(body: Body, op: Instruction, operands: list[Instruction]) -> list[Instruction]:
    """The results as words on the first device of the mesh, and zeros on the others."""
    em = body.em
    first = em.add(
        "compare", array_shape("pred"), em.coordinate(tuple(range(em.table.count))), em.index(0), direction="EQ"
    )
    given = em.add("tuple", tuple_shape(*(x.shape for x in operands)), *operands)
    inside = _branch(body, op, given.shape)
    (whole,) = inside.instructions
    elements = tuple(inside.add("get-tuple-element", x.shape, whole, index=k) for k, x in enumerate(operands))
    call = inside.append(op.replace(operands=elements, sharding=None), own=True)
    parts = [call]
    if op.shape.is_tuple:
        parts = [inside.add("get-tuple-element", s, call, index=k) for k, s in enumerate(op.shape.elements)]
    words = [w for x in parts for w in _bits_as_integers(inside, op, x)]
    outside = _branch(body, op, given.shape)
    zeros = [outside.splat(outside.scalar(0, w.shape.dtype), w.shape.dims) for w in words]
    called, skipped = _ended(body, f"call.{op.name}", inside, words), _ended(body, f"skip.{op.name}", outside, zeros)
    made = em.add(
        "conditional", called.root.shape, first, given, given, true_computation=called, false_computation=skipped
    )
    return [em.add("get-tuple-element", w.shape, made, index=k) for k, w in enumerate(words)]


def _branch(body: Body, op: Instruction, shape: Shape) -> Emitter:
    made = Emitter(body.em.table, body.em.reducers, body.em.names)
    made.metadata, made.origin = op.metadata, body.em.origin
    made.add("parameter", shape, index=0)
    return made


def _ended(body: Body, name: str, em: Emitter, results: list[Instruction]) -> Computation:
    root = em.add("tuple", tuple_shape(*(x.shape for x in results)), *results)
    return Computation(body.context.computation_names.own(name), em.instructions, root)


def _bits_as_integers(em: Emitter, op: Instruction, x: Instruction) -> list[Instruction]:
    """A result as integers of its bits: added to zeros, they are the same."""
    shape = x.shape
    if shape.dtype.is_complex:
        parts = [em.add(part, shape.with_dtype(_half(shape.dtype)), x) for part in ("real", "imag")]
        return [w for part in parts for w in _bits_as_integers(em, op, part)]
    if not shape.dtype.is_float:
        return [x]
    word = DTYPES.get(f"u{shape.dtype.bits}")
    if word is None:
        raise UnsupportedError(
            f"{title_of(op)} returns {shape}, which several devices cannot share",
            where=op.place,
            fix="return another element type",
        )
    return [em.add("bitcast-convert", shape.with_dtype(word), x)]


def _from_words(em: Emitter, shape: Shape, words: Iterator[Instruction]) -> Instruction:
    """The result whose `_bits_as_integers` these are."""
    if shape.dtype.is_complex:
        part = shape.with_dtype(_half(shape.dtype))
        return em.add("complex", shape, *(_from_words(em, part, words) for _ in range(2)))
    word = next(words)
    return em.add("bitcast-convert", shape, word) if shape.dtype.is_float else word


def _half(dtype: DType) -> DType:
    return DTYPES[f"f{dtype.bits // 2}"]
