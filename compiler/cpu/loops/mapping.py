"""Map kernels: a loop nest over output elements, the innermost loop in vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.outputs import MapOutput, moved_output
from shardc.compiler.cpu.loops.regions import find_inside, slabs
from shardc.compiler.cpu.loops.tiles import TransposedTile, side
from shardc.compiler.cpu.parallel import ChunkSpan
from shardc.compiler.cpu.reductions import columns
from shardc.compiler.cpu.reductions.short_rows import ShortRows, lanes_for
from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, LoopVar, Mask, Rest, linear
from shardc.compiler.elements.elements import Access, Elements, Index, Recorder, bases
from shardc.compiler.elements.frames import ForLoop, Frame, IfBlock, Val, deepest
from shardc.compiler.elements.loop_space import (
    bind_group,
    contiguous,
    counter_of,
    element_bits,
    group_size,
    merge,
    plan_space,
    power_above,
    reads_across,
)
from shardc.native.math.vector import I64, constant, intrinsic

__all__ = ["can_cut", "emit_map"]

#: Transposing loops run over blocks of so many bytes of reads by so many vectors of writes.
_BLOCK_READ, _BLOCK_WRITTEN = 512, 4
#: Narrowest vectors that go past the cache, in bytes.
_LEAST_STREAMED = 16
#: Least bytes of a contiguous run that is one chunk's.
_GRAIN = 1 << 12
#: Elementwise operations of a transposing map from which on its steps are a loop, to keep the code small.
_MANY = 3
#: Folds of at most so many steps take them one by one in each lane of the loop around them, if that reads vectors too.
_FEW = 16
#: A map of so few elements, read ones of folds counted, takes a microsecond whatever its code, and its code some
#: milliseconds to compile. So what fills no vector is part of a masked loop rather than code of its own, where vectors
#: of so many bits are masked for nothing, and short rows are folded one by one.
_SMALL, _MASKED = 1 << 12, 512


def emit_map(
    e: CpuEmitter,
    dims: Sequence[int],
    outputs: Sequence[MapOutput],
    frame: Frame | None = None,
    span: ChunkSpan | None = None,
    count: ir.Value | None = None,
) -> None:
    """Fill, for every index below ``dims``, that element of each output; the loops go into ``frame``.

    With ``span`` only those chunks' part of the indices is done; the first one does all where `can_cut` says no. With
    ``count`` there is one dimension, or none, and only so many of its elements, an i64 value, at least one.
    """
    if 0 in dims:
        return
    if count is not None and dims:
        _Nest.of(e, dims, outputs, whole=frame is None and span is None).emit_counted(frame or e.entry, count)
        return
    whole = frame is None and span is None
    inside = find_inside(e, dims, [o.element for o in outputs], memory.LINE // min(o.dtype.nbytes for o in outputs))
    for box in slabs(dims, inside[:-1]):
        nest = _Nest.of(e, box.sizes, [moved_output(o, box) for o in outputs], whole=whole)
        nest.split_lanes(inside)
        _emit_nest(nest, frame or e.entry, span)


def _emit_nest(nest: _Nest, frame: Frame, span: ChunkSpan | None) -> None:
    guard: IfBlock | None = None
    share: tuple[ir.Value, ir.Value] | None = None
    cut = None if span is None else nest.cut(span.count)
    if span is not None and cut is None:
        guard = IfBlock(frame, frame.builder.icmp_unsigned("==", span.begin, constant(I64, 0)))
        frame = guard.frame
    elif span is not None and cut is not None:
        share = span.steps(frame.builder, cut.steps)
        guard = IfBlock(frame, frame.builder.icmp_unsigned("<", *share))
        frame = guard.frame
    nest.emit(frame, cut, share)
    if guard is not None:
        guard.close()


def can_cut(e: CpuEmitter, dims: Sequence[int], outputs: Sequence[MapOutput], count: int) -> bool:
    """Whether `emit_map` may do this map in ``count`` chunks. Each would repeat a fold that depends on no loop."""
    return 0 in dims or _Nest.of(e, dims, outputs).cut(count) is not None


@dataclass(frozen=True, eq=False)
class _Level:
    """A loop: the merged variables that it counts, in steps of ``unit``; chunks are whole multiples of ``grain``."""

    group: list[LoopVar]
    unit: int = 1
    grain: int = 1
    #: Loops that were nested and became this one.
    nested: tuple[_Level, ...] = ()

    @property
    def size(self) -> int:
        return group_size(self.group)

    @property
    def steps(self) -> int:
        """Pieces that it may be cut into."""
        return -(-self.size // self.grain)

    def bind(self, e: CpuEmitter, counter: ir.Value, frame: Frame) -> None:
        """Inside ``frame`` its variables stand for ``counter``."""
        for level in reversed(self.nested[1:]):
            size = constant(I64, level.size)
            level.bind(e, frame.builder.urem(counter, size), frame)
            counter = frame.builder.udiv(counter, size)
        bind_group(e, self.nested[0].group if self.nested else self.group, Val((counter,), frame))


@dataclass
class _Nest:
    """The planned loops: ``outer``, then (for a transposing map) the loop across, then the lanes."""

    e: CpuEmitter
    recorder: Recorder
    body: _MapBody
    outer: list[_Level]
    across: _Level | None
    lanes: _Level | None
    columns: bool = False
    short_rows: bool = False
    #: So few elements that all steps may be one masked loop.
    small: bool = False
    #: The lanes' loop in several parts, each with code of its own.
    parts: list[tuple[_Level, _MapBody]] = field(default_factory=list)

    @staticmethod
    def of(e: CpuEmitter, dims: Sequence[int], outputs: Sequence[MapOutput], whole: bool = False) -> _Nest:
        """``whole``: one thread does all of the map. Without folds its steps are one vector then, to compile faster."""
        space, recorder = plan_space(e, dims, [o.element for o in outputs])
        longest = max((math.prod(use.fold.sizes) for use in recorder.folds), default=1)
        small = whole and math.prod(dims) * longest <= _SMALL
        stores = [_offset(e, o, space.index) for o in outputs]
        accesses = [*recorder.accesses, *(Access(o.shape, s, (), o) for o, s in zip(outputs, stores, strict=True))]
        groups = merge(space.variables, [a.offset for a in accesses], recorder.expressions())
        body = _MapBody(e, space.index, outputs, stores, [0] * len(outputs))
        if not groups:
            return _Nest(e, recorder, body, [], None, None)
        lanes = _lanes(e, groups, recorder, accesses, 1 if whole and not recorder.folded else 2)
        short = 1 if lanes > 1 or small else lanes_for(e, recorder, space.index, groups[-1][-1], group_size(groups[-1]))
        lanes = max(lanes, short)
        number = _across(groups, recorder) if lanes > 1 else None
        across = None
        if number is not None:
            narrowest = min(o.dtype.nbytes for o in outputs)
            lanes = min(memory.LINE // narrowest, power_above(group_size(groups[-1])))
            widest = max(a.shape.dtype.nbytes for a in recorder.accesses)
            high = side(e.vector_bits, widest)
            across = _Level(groups.pop(number), high, max(high, _BLOCK_READ // widest))
        inner = _Level(groups.pop(), lanes, _grain(recorder, outputs, lanes, across))
        body.streams = [
            _streamed_lanes(o, s, inner, tiled=across is not None) for o, s in zip(outputs, stores, strict=True)
        ]
        levels = [_Level(g) for g in _by_reads(groups, recorder.accesses)]
        by_columns = lanes > short and inner.size > lanes and columns.suits(recorder.folds, space.index)
        return _Nest(e, recorder, body, levels, across, inner, by_columns, short > 1, small)

    def split_lanes(self, inside: Sequence[tuple[int, int]]) -> None:
        """Give the last dimension's inside, and what lies before and behind it, code of their own."""
        level, e = self.lanes, self.e
        if level is None or not self.outer or self.across is not None or self.columns or self.short_rows or self.small:
            return
        (v, *others), last = level.group, self.body.index[-1]
        begin, end = inside[-1]
        if others or level.unit == 1 or last != Expr.of(v) or end - begin in (0, level.size):
            return
        for first, past in ((0, begin), (begin, end), (end, level.size)):
            if first < past:
                part = e.source.loop(past - first)
                index = (*self.body.index[:-1], Expr.of(part) + first)
                stores = [_offset(e, o, index) for o in self.body.outputs]
                own = _Level([part], level.unit, level.grain)
                pairs = zip(self.body.outputs, stores, strict=True)
                streams = [_streamed_lanes(o, s, own, tiled=False) for o, s in pairs]
                self.parts.append((own, _MapBody(e, index, self.body.outputs, stores, streams)))

    def cut(self, count: int) -> _Level | None:
        """The loop to cut into ``count`` chunks: the outer ones that together are long enough, else the longest.

        None where none may be cut: a fold inside must depend on the loop, or every chunk would do it again.
        """
        folds = [frozenset().union(*map(bases, index)) for index, _ in self.recorder.folded]

        def allowed(level: _Level) -> bool:
            return level.steps > 1 and all(f.intersection(level.group) for f in folds)

        for number in range(1, len(self.outer) + 1):
            joined = self.outer[:number]
            if not allowed(joined[-1]):
                break
            if math.prod(x.steps for x in joined) >= count:
                group = [v for x in joined for v in x.group]
                self.outer[:number] = joined if number == 1 else [_Level(group, nested=tuple(joined))]
                return self.outer[0]
        levels = [*self.outer, *(x for x in (self.across, self.lanes) if x is not None)]
        return max(filter(allowed, levels), key=lambda x: x.steps, default=None)

    def emit(self, frame: Frame, cut: _Level | None, share: tuple[ir.Value, ir.Value] | None) -> None:
        """The loops; of ``cut`` only the steps from ``share[0]`` up to ``share[1]``, of which there are some."""
        start = frame
        opened: list[ForLoop] = []
        for level in self.outer:
            loop = ForLoop(frame, share[1], 1, share[0]) if level is cut and share else ForLoop(frame, level.size)
            level.bind(self.e, loop.index, loop.frame)
            opened.append(loop)
            frame = loop.frame
        if self.lanes is None:
            self.body.emit(frame, ())
        elif self.columns:
            for run in _runs(frame, self.lanes, share if cut is self.lanes else None):
                self._column_blocks(run)
                run.close()
        elif self.across is None:
            masked = self.small and self.e.vector_bits >= _MASKED
            split = self.parts and cut is not self.lanes
            for level, body in self.parts if split else [(self.lanes, self.body)]:
                for run in _runs(frame, level, share if cut is level else None, masked):
                    self._row(run, level, body)
                    run.close()
        else:
            for tall in _runs(frame, self.across, share if cut is self.across else None):
                for wide in _runs(tall.frame, self.lanes, share if cut is self.lanes else None):
                    self._block(tall, wide)
                    wide.close()
                tall.close()
        for loop in reversed(opened):
            loop.close()
        if any(any(body.streams) for body in (self.body, *(b for _, b in self.parts))):
            start.builder.fence("seq_cst")

    def emit_counted(self, frame: Frame, count: ir.Value) -> None:
        """The loop over elements, of which there are ``count``: whole vectors, then one of which some lanes exist, or
        all of them masked."""
        level = self.lanes
        assert level is not None and not self.outer and self.across is None and not self.columns
        b = frame.builder
        past = self.e.source.loop(level.size + 1)
        self.e.bind(past, Val((count,), frame))
        left = Rest(Expr.of(past) - counter_of(level.group), 1, level.size + 2)
        if level.unit > 1 and self.e.vector_bits >= _MASKED:
            self._row(_LoopRun(frame, 0, count, level.unit, mask=(left,)), level, self.body)
            return
        whole = b.and_(count, constant(I64, -level.unit))
        some = IfBlock(frame, b.icmp_unsigned("!=", whole, constant(I64, 0)))
        self._row(_LoopRun(some.frame, 0, whole, level.unit), level, self.body)
        some.close()
        if level.unit == 1:
            return
        rest = IfBlock(frame, b.icmp_unsigned("<", whole, count))
        self._row(_LoopRun(rest.frame, whole, count, level.unit, mask=(left,)), level, self.body)
        rest.close()

    def _row(self, run: _LoopRun, level: _Level, body: _MapBody) -> None:
        """The innermost loop: whole vectors, or one masked vector for the rest."""
        loop = ForLoop(run.frame, run.end, run.unit, run.begin)
        lanes, mask = _width(run, level)
        bind_group(self.e, level.group, Val((loop.index,), loop.frame), lanes)
        if self.short_rows:
            rows = ShortRows(self.e, mask, level.group[-1], lanes, run.unit)
            self.e.folded |= {use.key: partial(rows.results, use, loop.frame) for use in self.recorder.folds}
        body.emit(loop.frame, mask)
        self.e.folded.clear()
        loop.close()

    def _column_blocks(self, run: _LoopRun) -> None:
        """Reductions along other directions than the lanes, a block of columns at a time."""
        assert self.lanes is not None
        e = self.e
        lanes, mask = _width(run, self.lanes)
        block = ForLoop(run.frame, run.end, columns.BLOCK if lanes == run.unit else run.unit, run.begin)
        past = _least(block.frame.builder, block.index, columns.BLOCK, run.end)
        done = columns.Columns(e, self.recorder.folds, mask, self.lanes.group, lanes)
        done.reduce(block.frame, block.index, past)
        loop = ForLoop(block.frame, past, lanes, block.index)
        done.bind(Val((loop.index,), loop.frame))
        for n, use in enumerate(self.recorder.folds):
            e.folded[use.key] = partial(done.results, n, loop.frame, loop.index, block.index)
        self.body.emit(loop.frame, mask)
        e.folded.clear()
        loop.close()
        block.close()

    def _block(self, tall: _LoopRun, wide: _LoopRun) -> None:
        """Tiles of one size, block by block: lines are read and written whole while they are near."""
        assert self.across is not None
        assert self.lanes is not None
        written, read = self.lanes.grain // wide.unit * wide.unit or wide.unit, self.across.grain
        read = read // tall.unit * tall.unit or tall.unit
        loops = [ForLoop(wide.frame, wide.end, written, wide.begin)]
        loops.append(ForLoop(loops[-1].frame, tall.end, read, tall.begin))
        past = [
            _least(x.frame.builder, x.index, step, run.end)
            for x, step, run in zip(loops, (written, read), (wide, tall), strict=True)
        ]
        loops.append(ForLoop(loops[-1].frame, past[1], tall.unit, loops[1].index))
        loops.append(ForLoop(loops[-1].frame, past[0], wide.unit, loops[0].index))
        self._tile(loops[-1].frame, tall.unit, loops[2].index, wide, loops[3].index)
        for loop in reversed(loops):
            loop.close()

    def _tile(self, frame: Frame, height: int, first: ir.Value, wide: _LoopRun, at: ir.Value) -> None:
        e, across, inner = self.e, self.across, self.lanes
        assert across is not None
        assert inner is not None
        lanes, mask = _width(wide, inner)
        bind_group(e, across.group, Val((first,), frame))
        bind_group(e, inner.group, Val((at,), frame), lanes)
        rolled = self.recorder.operations >= _MANY
        e.tile = tile = TransposedTile(e, across.group[-1], inner.group[-1], height, lanes, wide.unit, rolled)
        tile.fill(self.recorder.accesses, frame)
        for step in range(1 if rolled else height):
            loop = ForLoop(frame, height) if rolled else None
            tile.step = step if loop is None else loop.index
            tile.frame = frame if loop is None else loop.frame
            here = tile.frame.builder.add(first, constant(I64, step) if loop is None else loop.index)
            bind_group(e, across.group, Val((here,), tile.frame))
            self.body.emit(tile.frame, mask)
            if loop is not None:
                loop.close()
        e.tile = None


@dataclass
class _LoopRun:
    """A part of a loop whose steps are all of one size: from ``begin`` up to ``end`` in steps of ``unit``, of which
    those elements exist that ``mask`` says, if the last step may be smaller."""

    frame: Frame
    begin: int | ir.Value
    end: int | ir.Value
    unit: int
    guard: IfBlock | None = None
    mask: Mask = ()

    def close(self) -> None:
        if self.guard is not None:
            self.guard.close()


def _width(run: _LoopRun, level: _Level) -> tuple[int, Mask]:
    """Lanes of a step, and which of them exist."""
    if run.mask:
        return run.unit, run.mask
    lanes = min(level.unit, power_above(run.unit))
    return lanes, () if lanes == run.unit else (Rest(counter_of(level.group), 0, level.size),)


def _runs(
    frame: Frame, level: _Level, share: tuple[ir.Value, ir.Value] | None, masked: bool = False
) -> Iterator[_LoopRun]:
    """The whole steps of a loop (or of a share of it), then what remains of it, in one smaller step; or ``masked``, all
    in one."""
    whole = level.size // level.unit
    rest = level.size % level.unit
    if masked and whole and rest:
        yield _LoopRun(frame, 0, level.size, level.unit, mask=(Rest(counter_of(level.group), 0, level.size),))
        return
    if share is None:
        if whole:
            yield _LoopRun(frame, 0, whole * level.unit, level.unit)
        if rest:
            yield _LoopRun(frame, whole * level.unit, level.size, rest)
        return
    b = frame.builder
    if whole:
        begin, end = (b.mul(x, constant(I64, level.grain)) for x in share)
        end = intrinsic(b, "llvm.umin", I64, [end, constant(I64, whole * level.unit)])
        guard = IfBlock(frame, b.icmp_unsigned("<", begin, end))
        yield _LoopRun(guard.frame, begin, end, level.unit, guard)
    if rest:
        last = IfBlock(frame, frame.builder.icmp_unsigned("==", share[1], constant(I64, level.steps)))
        yield _LoopRun(last.frame, whole * level.unit, level.size, rest, last)


def _grain(recorder: Recorder, outputs: Sequence[MapOutput], lanes: int, across: _Level | None) -> int:
    """Elements of the innermost loop that stay together: a contiguous run, but few where an element takes long."""
    if across is not None:
        return _BLOCK_WRITTEN * lanes
    if recorder.one_by_one or (recorder.folds and lanes == 1):
        return 1
    return -(-_GRAIN // min(o.dtype.nbytes for o in outputs) // lanes) * lanes


def _least(b: ir.IRBuilder, first: ir.Value, step: int, end: int | ir.Value) -> ir.Value:
    past = constant(I64, end) if isinstance(end, int) else end
    return intrinsic(b, "llvm.umin", I64, [b.add(first, constant(I64, step)), past])


def _across(groups: list[list[LoopVar]], recorder: Recorder) -> int | None:
    """The loop along which most reads are contiguous, where that is not the innermost: a transposition.

    Reads inside folds follow loops of their own.
    """
    if recorder.folded:
        return None
    inner = groups[-1][-1]
    best = contiguous(recorder.accesses, inner)
    found = None
    for number, group in enumerate(groups[:-1]):
        count = contiguous(recorder.accesses, group[-1])
        if (
            count > best
            and group_size(group) > 1
            and any(reads_across(a.offset, group[-1], inner) for a in recorder.accesses)
        ):
            best, found = count, number
    return found


def _by_reads(groups: list[list[LoopVar]], accesses: Sequence[Access]) -> list[list[LoopVar]]:
    """Loops in the order in which memory is read: writes need no prefetching.

    Only reads that every loop moves count.
    """

    def strides(a: Access) -> list[int]:
        return [abs(a.offset.coefficient(g[-1])) for g in groups]

    moved = [s for a in accesses if all(s := strides(a)) and len(set(s)) == len(s)]
    if not moved or len(groups) < 2:
        return groups
    return [g for _, g in sorted(zip(moved[0], groups, strict=True), key=lambda pair: -pair[0])]


def _streamed_lanes(o: MapOutput, offset: Expr, inner: _Level, tiled: bool) -> int:
    """The lanes of the vectors that had better go past the cache: those of large outputs of whole lines; else 0.

    A line must be written at once (in a transposing map), or by the vectors that follow each other.
    """
    width = inner.unit * o.dtype.nbytes
    if o.shape.nbytes < o.streamed or offset.coefficient(inner.group[-1]) != 1:
        return 0
    if width % memory.LINE and (tiled or width < _LEAST_STREAMED or memory.LINE % width):
        return 0
    steps = [offset.const, *(c for v, c in offset.terms if v is not inner.group[-1])]
    plain = all(isinstance(v, LoopVar) for v in offset.variables())
    return inner.unit if plain and not any(c * o.dtype.nbytes % memory.LINE for c in steps) else 0


def _offset(e: Elements, o: MapOutput, index: Index) -> Expr:
    return linear(index if o.place is None else o.place(e, index), o.shape.dims)


def _lanes(e: CpuEmitter, groups: list[list[LoopVar]], recorder: Recorder, accesses: list[Access], vectors: int) -> int:
    """Lanes of the innermost loop, in some ``vectors``; 1 where reductions inside are better done in their own."""
    if not groups or recorder.one_by_one:
        return 1
    inner = groups[-1][-1]
    own = 0
    for index, variables in recorder.folded:
        if any(x.coefficient(inner) for x in index):
            own += max((contiguous(recorder.accesses, v) for v in variables if v.size > 1), default=0)
    along = contiguous(recorder.accesses, inner)
    few = all(math.prod(v.size for v in variables) <= _FEW for _, variables in recorder.folded)
    if own > along and not (along and few):
        return 1
    bits = element_bits([a.shape.dtype for a in accesses])
    widest = vectors * e.vector_bits // bits
    if recorder.folded and any(any(x.coefficient(inner) for x in index) for index, _ in recorder.folded):
        widest *= 4
    return min(widest, power_above(group_size(groups[-1])))


@dataclass
class _MapBody:
    """What an iteration does: evaluate all outputs, then store them; vectors of ``streams`` lanes past the cache."""

    e: CpuEmitter
    index: Index
    outputs: Sequence[MapOutput]
    stores: Sequence[Expr]
    streams: list[int]

    def emit(self, frame: Frame, mask: Mask) -> None:
        e = self.e
        values = [o.element(e, self.index, mask) for o in self.outputs]
        for o, value, offset, streams in zip(self.outputs, values, self.stores, self.streams, strict=True):
            _store(e, frame, o, value, offset, mask, streams)


def _store(e: CpuEmitter, frame: Frame, o: MapOutput, value: Val, offset: Expr, mask: Mask, streams: int) -> None:
    at, step, lanes, vector = e.split(offset)
    holds = e.mask(mask)
    frame = deepest([at, value] if holds is None else [at, value, holds], frame)
    parts = value.wide(lanes)
    m = None if holds is None else holds.wide(lanes)[0]
    if lanes > 1 and (step != 1 or vector is not None):
        memory.scatter(frame.builder, parts, o.pointer, e.index(offset).value, o.dtype, m)
    elif streams == lanes and m is None:
        memory.stream(frame.builder, parts, o.pointer, at.value, o.dtype)
    else:
        memory.store(frame.builder, parts, o.pointer, at.value, o.dtype, m)
