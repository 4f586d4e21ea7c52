"""Reductions of columns: neighbouring threads take neighbouring columns, 16 bytes each, so memory is read as it lies.

A block's threads form a rectangle: some columns wide, and as high as there are threads left, which share the rows and
meet in shared memory, by a fixed tree. Where that makes too few blocks, rows are cut in parts too, and a second launch
folds what the parts gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.frames import Frame, IfBlock, Val
from shardc.compiler.elements.loop_space import group_size, power_above, power_below
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import SharedSpace, Totals, load_words, store_words, word_bytes
from shardc.compiler.gpu.reductions.fold_plan import FoldPlan, Group, bind_units, lanes_along
from shardc.compiler.gpu.reductions.fold_stage import FoldStage, kernel_plan, partials_of
from shardc.compiler.gpu.reductions.walk import Step, WorkShare, walk
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I32, I64, constant

__all__ = ["ColumnShape", "column_shape", "emit_column_reduction", "takes_column_reduction"]

#: Threads of a block.
_THREADS = 256
#: Threads across, in whole runs of memory, and the fewest that still fill them.
_WIDE, _NARROW = 32, 4
#: Rows of a thread that are not worth others' help where columns are plenty.
_FEW_ROWS = 64
#: Threads of a multiprocessor that keep it busy; least bytes of a block that is one part of several.
_BUSY, _PART_BYTES = 1024, 32 << 10


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """Blocks of ``width`` columns (in units of lanes) by ``height`` threads; ``splits`` parts of the rows.

    ``across`` is how many units of columns lie together in memory, ``batches`` how often they do.
    """

    across: int
    batches: int
    rows: int
    width: int
    height: int
    splits: int = 1

    @property
    def threads(self) -> int:
        return self.width * self.height

    @property
    def tiles(self) -> int:
        return -(-self.across // self.width)

    @property
    def grid(self) -> tuple[int, int]:
        return self.tiles * self.batches, self.splits


def column_shape(
    target: GpuTarget, across: int, batches: int, rows: int, row_bytes: int, *, split: bool = True
) -> ColumnShape:
    """How threads are laid over ``rows`` rows of ``batches`` times ``across`` units; a row has ``row_bytes`` bytes."""
    chip, units = target.chip, across * batches
    widest = power_above(across)
    if rows <= _FEW_ROWS and units >= _BUSY * chip.multiprocessors:
        return ColumnShape(across, batches, rows, min(_THREADS, widest), 1)
    width, highest = min(_WIDE, widest), power_below(rows)
    height = min(_THREADS // width, highest)
    wanted = 8 * chip.multiprocessors
    parts = 1
    if split:
        blocks = -(-across // width) * batches
        parts = min(-(-wanted // blocks), rows // (8 * height), row_bytes * rows // blocks // _PART_BYTES, 65535)
    if parts < 2:
        parts = 1
        while width > _NARROW and -(-across // width) * batches < chip.multiprocessors and height < highest:
            width, height = width // 2, min(2 * height, highest)
    return ColumnShape(across, batches, rows, width, height, parts)


def takes_column_reduction(kernel: GpuKernel) -> bool:
    """Any kernel of reductions, one of each per result, whose memory lies along the results."""
    plan = kernel_plan(kernel)
    return plan is not None and plan.by_columns


def emit_column_reduction(kernel: GpuKernel) -> None:
    """One launch, or two where there are few columns."""
    plan = kernel_plan(kernel)
    assert plan is not None
    columns = plan.best_kept
    lanes = lanes_along(plan.accesses, columns)
    across, batches = group_size(columns) // lanes, plan.rows // group_size(columns)
    sizes = {a.leaf: a.shape.dtype.nbytes for a in plan.accesses if a.offset.coefficient(columns[-1]) == 1}
    row_bytes = plan.rows * sum(sizes.values())
    shape = column_shape(kernel.target, across, batches, plan.steps, row_bytes)
    if shape.splits == 1:
        _emit(kernel, shape, lanes)
        return
    partials = partials_of(kernel, plan, plan.rows * shape.splits)
    _emit(kernel, shape, lanes, target=partials)
    _emit(kernel, column_shape(kernel.target, across, batches, shape.splits, 0, split=False), lanes, source=partials)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a thread is: its columns (in units), its batch, whether they exist (None: always), its row of threads."""

    across: ir.Value
    batch: ir.Value
    valid: ir.Value | None
    height: ir.Value

    def bind(self, stage: FoldStage, frame: Frame, groups: tuple[list[Group], Group], lanes: int) -> None:
        bind_units(stage.e, frame, groups[0], self.batch)
        bind_units(stage.e, frame, [groups[1]], self.across, lanes)

    def column(self, b: ir.IRBuilder, shape: ColumnShape, lanes: int) -> ir.Value:
        """The first of the thread's columns, counted over all batches."""
        unit = b.add(b.mul(self.batch, constant(I64, shape.across)), self.across)
        return b.mul(unit, constant(I64, lanes))


def _place(b: ir.IRBuilder, thread: ir.Value, block: ir.Value, shape: ColumnShape) -> _Place:
    tile, batch = block, constant(I32, 0)
    if shape.batches > 1:
        tile, batch = (getattr(b, op)(block, constant(I32, shape.tiles)) for op in ("urem", "udiv"))
    x, y = (getattr(b, op)(thread, constant(I32, shape.width)) for op in ("urem", "udiv"))
    across = b.zext(b.add(b.mul(tile, constant(I32, shape.width)), x), I64)
    valid = None
    if shape.across % shape.width:
        valid = b.icmp_unsigned("<", across, constant(I64, shape.across))
        across = b.select(valid, across, constant(I64, 0))
    return _Place(across, b.zext(batch, I64), valid, y)


def _groups(plan: FoldPlan) -> tuple[list[Group], Group]:
    """The loops over batches, and that over columns."""
    columns = plan.best_kept
    return [g for g in plan.kept if g is not columns], columns


def _emit(
    kernel: GpuKernel,
    shape: ColumnShape,
    lanes: int,
    source: Sequence[LaunchArray] = (),
    target: Sequence[LaunchArray] = (),
) -> None:
    stage = FoldStage(kernel, shape.threads, source, target)
    e, plan, code = stage.e, stage.plan, stage.e.code
    frame, shared = e.entry, SharedSpace()
    b = frame.builder
    place = _place(b, code.thread(b), code.block(b), shape)
    worker = b.zext(place.height, I64)
    if target:
        worker = b.add(b.mul(b.zext(code.block(b, 1), I64), constant(I64, shape.height)), worker)
    groups = _groups(plan)
    column = place.column(b, shape, lanes)
    step: Step
    if source:
        step = stage.partial_step(column, plan.rows, lanes)
    else:
        place.bind(stage, frame, groups, lanes)
        step = stage.step(plan.folded, 1)
    totals = Totals(e, plan.reducers, lanes)
    totals.start(frame)
    walk(frame, WorkShare(shape.rows, shape.height * shape.splits, plan.unroll(), plan.ordered), worker, step, totals)
    if shape.height > 1:
        _meet(stage, frame, totals, place, shape, shared)
    first = b.icmp_unsigned("==", place.height, constant(I32, 0))
    writing = IfBlock(frame, first if place.valid is None else b.and_(first, place.valid))
    values = totals.read(writing.frame)
    if target:
        part = writing.frame.builder.zext(code.block(writing.frame.builder, 1), I64)
        at = writing.frame.builder.add(writing.frame.builder.mul(part, constant(I64, plan.rows)), column)
        store_words(writing.frame.builder, [v for vs in values for v in vs], stage.pointers(target), at, lanes)
    else:
        place.bind(stage, writing.frame, groups, lanes)
        stage.write_results(writing.frame, values, lanes)
    writing.close()
    e.finish()
    kernel.launch(stage.function, shape.grid, shared.nbytes)


def _meet(
    stage: FoldStage, frame: Frame, totals: Totals, place: _Place, shape: ColumnShape, shared: SharedSpace
) -> None:
    """Fold what the threads of a column hold into those of its first row: neighbours, then pairs."""
    e, plan, code, b, lanes = stage.e, stage.plan, stage.e.code, frame.builder, totals.lanes
    places = [
        [code.shared(b, shared.take(shape.threads * lanes * word_bytes(t))) for t in r.part_types]
        for r in plan.reducers
    ]
    own = b.mul(b.zext(code.thread(b), I64), constant(I64, lanes))
    _put(frame, totals.read(frame), places, own, lanes)
    half = 1
    while half < shape.height:
        code.barrier(b)
        part = b.and_(place.height, constant(I32, 2 * half - 1))
        taking = IfBlock(frame, b.icmp_unsigned("==", part, constant(I32, 0)))
        at = taking.frame.builder.add(own, constant(I64, half * shape.width * lanes))
        mine: list[list[Val]] = []
        for r, values, row in zip(plan.reducers, totals.read(taking.frame), places, strict=True):
            mine.append(r.combine(e, values, load_words(taking.frame, r.dtypes, row, at, lanes)))
        totals.set(taking.frame, mine)
        if 2 * half < shape.height:
            _put(taking.frame, mine, places, own, lanes)
        taking.close()
        half *= 2


def _put(
    frame: Frame, values: Sequence[Sequence[Val]], places: Sequence[Sequence[ir.Value]], at: ir.Value, lanes: int
) -> None:
    for row, found in zip(places, values, strict=True):
        store_words(frame.builder, found, row, at, lanes)
