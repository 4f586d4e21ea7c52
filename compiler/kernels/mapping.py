"""Map kernels: a loop nest over output elements, the innermost loop in vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.kernels import memory
from shardc.compiler.kernels.affine import Expr, LoopVar, Mask, Rest, linear
from shardc.compiler.kernels.elements import Access, Element, Elements, Index, Recorder, bases
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.frames import Branch, Frame, Loop, Val, deepest
from shardc.compiler.kernels.loops import Space, contiguous, element_bits, merge, power_above
from shardc.hlo.types import DType, Shape
from shardc.native.vector import I64, constant, intrinsic

__all__ = ["Output", "Span", "bind_group", "counter_of", "emit_map", "group_size"]

#: Transposing loops: elements along the direction of reads per tile, and lanes along that of writes.
_TILE, _TILE_LANES = 16, 8


@dataclass(frozen=True)
class Output:
    """An array to fill: where, its shape, and its elements.

    ``place`` says which index of the array an index of the iteration writes (default: the same).
    """

    pointer: ir.Value
    shape: Shape
    element: Element
    place: Callable[[Elements, Index], Index] | None = None

    @property
    def dtype(self) -> DType:
        return self.shape.dtype


@dataclass(frozen=True)
class Span:
    """Chunks [begin, end) of ``count`` that an iteration space is cut into; the bounds are i64 values, begin < end."""

    count: int
    begin: ir.Value
    end: ir.Value

    def steps(self, b: ir.IRBuilder, total: int) -> tuple[ir.Value, ir.Value]:
        """The chunks' share of ``total`` steps of a loop: first and past the last; it may be empty."""

        def at(chunk: ir.Value) -> ir.Value:
            return b.udiv(b.mul(chunk, constant(I64, total)), constant(I64, self.count))

        return at(self.begin), at(self.end)


def emit_map(
    e: Emitter,
    dims: Sequence[int],
    outputs: Sequence[Output],
    frame: Frame | None = None,
    span: Span | None = None,
) -> None:
    """Fill, for every index below ``dims``, that element of each output; the loops go into ``frame``.

    With ``span`` only those chunks' part of the indices is done; chunk 0 does all where the work cannot be cut.
    """
    if 0 in dims:
        return
    space, recorder = _plan(e, dims, outputs)
    stores = [_offset(e, o, space.index) for o in outputs]
    accesses = [*recorder.accesses, *(Access(o.shape, s, (), o) for o, s in zip(outputs, stores, strict=True))]
    groups = merge(space.variables, [a.offset for a in accesses], recorder.expressions())
    lanes = _lanes(e, groups, recorder, accesses)
    across = _across(groups, recorder) if lanes > 1 else None
    tiled = [] if across is None else groups.pop(across)
    body = _Body(e, space, outputs, stores)
    frame = frame or e.entry
    cut = None if span is None else _cut(groups, tiled, lanes, recorder, span.count)
    guard: Branch | None = None
    if span is not None and cut is None:
        guard = Branch(frame, frame.builder.icmp_unsigned("==", span.begin, constant(I64, 0)))
        frame, span = guard.frame, None
    share: tuple[ir.Value, ir.Value] | None = None
    if span is not None and (cut is tiled or cut is not groups[-1]):
        assert cut is not None
        share = span.steps(frame.builder, -(-group_size(cut) // (_TILE if cut is tiled else 1)))
        guard = Branch(frame, frame.builder.icmp_unsigned("<", *share))
        frame = guard.frame
    open_loops: list[Loop] = []
    for group in groups[: len(groups) - 1]:
        loop = (
            Loop(frame, group_size(group)) if share is None or group is not cut else Loop(frame, share[1], 1, share[0])
        )
        bind_group(e, group, Val((loop.index,), loop.frame))
        open_loops.append(loop)
        frame = loop.frame
    if tiled:
        loop = _tiles(frame, group_size(tiled), share if cut is tiled else None)
        body.tile = (tiled, Val((loop.index,), loop.frame))
        open_loops.append(loop)
        frame, lanes = loop.frame, min(lanes, _TILE_LANES)
    if groups:
        _inner(e, frame, groups[-1], lanes, body, span if share is None else None)
    else:
        body.emit(frame, ())
    for loop in reversed(open_loops):
        loop.close()
    if guard is not None:
        guard.close()


def _tiles(frame: Frame, size: int, share: tuple[ir.Value, ir.Value] | None) -> Loop:
    """The loop over tiles of ``size`` elements, or over a share of them."""
    if share is None:
        return Loop(frame, size, _TILE)
    first, past = (frame.builder.mul(s, constant(I64, _TILE)) for s in share)
    return Loop(frame, past, _TILE, first)


def _cut(
    groups: list[list[LoopVar]], tiled: list[LoopVar], lanes: int, recorder: Recorder, count: int
) -> list[LoopVar] | None:
    """The loop to cut into ``count`` chunks: the outermost long enough, else the longest; None where none may be.

    A fold inside must depend on the loop, or every chunk would do it again.
    """
    if not groups:
        return None
    steps = [(group_size(g), g) for g in groups[:-1]]
    if tiled:
        steps.append((-(-group_size(tiled) // _TILE), tiled))
    steps.append((group_size(groups[-1]) // lanes, groups[-1]))
    folds = [frozenset().union(*map(bases, index)) for index, _ in recorder.folded]
    allowed = [(n, g) for n, g in steps if n > 1 and all(f.intersection(g) for f in folds)]
    long = next((g for n, g in allowed if n >= count), None)
    return long or max(allowed, key=lambda a: a[0], default=(0, None))[1]


def _across(groups: list[list[LoopVar]], recorder: Recorder) -> int | None:
    """The loop along which most reads are contiguous, where that is not the innermost: a transposition.

    It is cut into tiles that run inside the vector loop, so that every cache line that is read is used whole.
    """
    best = contiguous(recorder.accesses, groups[-1][-1])
    found = None
    for number, group in enumerate(groups[:-1]):
        count = contiguous(recorder.accesses, group[-1])
        if count > best and group_size(group) > 1:
            best, found = count, number
    return found


def _plan(e: Emitter, dims: Sequence[int], outputs: Sequence[Output]) -> tuple[Space, Recorder]:
    """Split dimensions until nothing is gained, and see what memory is touched."""
    space = Space(e.source, dims)
    for _ in range(8):
        recorder = Recorder(e.source, e.leaves, e.rules)
        for o in outputs:
            o.element(recorder, space.index, ())
        if not space.split_for([a.offset for a in recorder.accesses] + recorder.uses):
            break
    return space, recorder


def _offset(e: Elements, o: Output, index: Index) -> Expr:
    return linear(index if o.place is None else o.place(e, index), o.shape.dims)


def group_size(group: Sequence[LoopVar]) -> int:
    total = 1
    for v in group:
        total *= v.size
    return total


def bind_group(e: Emitter, group: Sequence[LoopVar], counter: Val, lanes: int = 1) -> None:
    """The group's last variable counts for all of it, the others stay 0."""
    zero = Val((constant(I64, 0),), e.entry)
    for v in group[:-1]:
        e.bind(v, zero)
    e.bind(group[-1], counter, lanes)


def _lanes(e: Emitter, groups: list[list[LoopVar]], recorder: Recorder, accesses: list[Access]) -> int:
    """Vector width of the innermost loop; 1 where reductions inside are better done in vectors of their own."""
    if not groups or recorder.one_by_one:
        return 1
    inner = groups[-1][-1]
    own = 0
    for index, variables in recorder.folded:
        if any(x.coefficient(inner) for x in index):
            own += max((contiguous(recorder.accesses, v) for v in variables if v.size > 1), default=0)
    if own > contiguous(recorder.accesses, inner):
        return 1
    bits = element_bits([a.shape.dtype for a in accesses])
    widest = 2 * e.vector_bits // bits
    if recorder.folded and any(any(x.coefficient(inner) for x in index) for index, _ in recorder.folded):
        widest *= 4
    return min(widest, power_above(group_size(groups[-1])))


@dataclass
class _Body:
    """What an iteration does: evaluate all outputs, then store them; with ``tile``, for each step of a tile."""

    e: Emitter
    space: Space
    outputs: Sequence[Output]
    stores: Sequence[Expr]
    tile: tuple[list[LoopVar], Val] | None = None

    def emit(self, frame: Frame, mask: Mask) -> None:
        if self.tile is None:
            self._element(frame, mask)
            return
        group, first = self.tile
        b = first.frame.builder
        past = b.add(first.value, constant(I64, _TILE))
        if group_size(group) % _TILE:
            past = intrinsic(b, "llvm.umin", I64, [past, constant(I64, group_size(group))])
        loop = Loop(frame, past, 1, first.value)
        bind_group(self.e, group, Val((loop.index,), loop.frame))
        self._element(loop.frame, mask)
        loop.close()

    def _element(self, frame: Frame, mask: Mask) -> None:
        e = self.e
        values = [o.element(e, self.space.index, mask) for o in self.outputs]
        for o, value, offset in zip(self.outputs, values, self.stores, strict=True):
            _store(e, frame, o, value, offset, mask)


def _store(e: Emitter, frame: Frame, o: Output, value: Val, offset: Expr, mask: Mask) -> None:
    at, step, lanes, vector = e.split(offset)
    holds = e.mask(mask)
    frame = deepest([at, value] if holds is None else [at, value, holds], frame)
    parts = value.wide(lanes)
    if lanes > 1 and (step != 1 or vector is not None):
        offsets = e.index(offset)
        m = None if holds is None else holds.wide(lanes)[0]
        memory.scatter(frame.builder, parts, o.pointer, offsets.value, o.dtype, m)
        return
    m = None if holds is None else holds.wide(lanes)[0]
    memory.store(frame.builder, parts, o.pointer, at.value, o.dtype, m)


def _inner(e: Emitter, frame: Frame, group: list[LoopVar], lanes: int, body: _Body, span: Span | None = None) -> None:
    """The innermost loop: whole vectors, then one masked vector for the rest, which is the last chunk's."""
    size = group_size(group)
    whole, rest = divmod(size, lanes)
    if whole:
        first, past = (0, whole) if span is None else span.steps(frame.builder, whole)
        some = None if span is None else Branch(frame, frame.builder.icmp_unsigned("<", first, past))
        inside = frame if some is None else some.frame
        loop = Loop(inside, _scaled(inside, past, lanes), lanes, _scaled(inside, first, lanes))
        bind_group(e, group, Val((loop.index,), loop.frame), lanes)
        body.emit(loop.frame, ())
        loop.close()
        if some is not None:
            some.close()
    if not rest:
        return
    last = (
        None if span is None else Branch(frame, frame.builder.icmp_unsigned("==", span.end, constant(I64, span.count)))
    )
    tail = min(lanes, power_above(rest))
    bind_group(e, group, Val((constant(I64, whole * lanes),), e.entry), tail)
    body.emit(frame if last is None else last.frame, () if tail == rest else (Rest(counter_of(group), 0, size),))
    if last is not None:
        last.close()


def _scaled(frame: Frame, steps: int | ir.Value, by: int) -> int | ir.Value:
    return steps * by if isinstance(steps, int) else frame.builder.mul(steps, constant(I64, by))


def counter_of(group: Sequence[LoopVar]) -> Expr:
    """The counter of a group as an expression (only its last variable is bound to it)."""
    total, stride = Expr(), 1
    for v in reversed(group):
        total = total + Expr.of(v) * stride
        stride *= v.size
    return total
