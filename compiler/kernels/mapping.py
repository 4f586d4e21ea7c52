"""Map kernels: a loop nest over output elements, the innermost loop in vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.kernels import memory
from shardc.compiler.kernels.affine import Expr, LoopVar, Mask, Rest, linear
from shardc.compiler.kernels.elements import Access, Element, Elements, Index, Recorder
from shardc.compiler.kernels.emitter import Emitter
from shardc.compiler.kernels.frames import Frame, Loop, Val, deepest
from shardc.compiler.kernels.loops import Space, contiguous, element_bits, merge, power_above
from shardc.hlo.types import DType, Shape
from shardc.native.vector import I64, constant, intrinsic

__all__ = ["Output", "bind_group", "counter_of", "emit_map", "group_size"]

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


def emit_map(e: Emitter, dims: Sequence[int], outputs: Sequence[Output], frame: Frame | None = None) -> None:
    """Fill, for every index below ``dims``, that element of each output; the loops go into ``frame``."""
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
    open_loops: list[Loop] = []
    for group in groups[: len(groups) - 1]:
        loop = Loop(frame, group_size(group))
        bind_group(e, group, Val((loop.index,), loop.frame))
        open_loops.append(loop)
        frame = loop.frame
    if tiled:
        loop = Loop(frame, group_size(tiled), _TILE)
        body.tile = (tiled, Val((loop.index,), loop.frame))
        open_loops.append(loop)
        frame, lanes = loop.frame, min(lanes, _TILE_LANES)
    if groups:
        _inner(e, frame, groups[-1], lanes, body)
    else:
        body.emit(frame, ())
    for loop in reversed(open_loops):
        loop.close()


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


def _inner(e: Emitter, frame: Frame, group: list[LoopVar], lanes: int, body: _Body) -> None:
    """The innermost loop: whole vectors, then one masked vector for the rest."""
    size = group_size(group)
    whole, rest = divmod(size, lanes)
    if whole:
        loop = Loop(frame, whole * lanes, lanes)
        bind_group(e, group, Val((loop.index,), loop.frame), lanes)
        body.emit(loop.frame, ())
        loop.close()
    if not rest:
        return
    tail = min(lanes, power_above(rest))
    bind_group(e, group, Val((constant(I64, whole * lanes),), e.entry), tail)
    body.emit(frame, () if tail == rest else (Rest(counter_of(group), 0, size),))


def counter_of(group: Sequence[LoopVar]) -> Expr:
    """The counter of a group as an expression (only its last variable is bound to it)."""
    total, stride = Expr(), 1
    for v in reversed(group):
        total = total + Expr.of(v) * stride
        stride *= v.size
    return total
