"""Reductions of rows: some threads, a warp, a block or several blocks fold each row, 16 bytes of memory at a time.

Which threads fold what depends on shapes and the target alone, and they meet in a fixed tree: the same bits every time.
Few long rows are cut in parts of a block each; a second launch folds what the parts gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.fold_emitter import across_lanes
from shardc.compiler.elements.frames import Frame, IfBlock, Val
from shardc.compiler.elements.loop_space import power_below
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import SharedSpace, Totals, across_threads, store_words
from shardc.compiler.gpu.reductions.fold_plan import bind_units, lanes_along
from shardc.compiler.gpu.reductions.fold_stage import FoldStage, kernel_plan, partials_of
from shardc.compiler.gpu.reductions.walk import Step, WorkShare, walk
from shardc.native.gpu.target import GpuTarget
from shardc.native.math.vector import I32, I64, constant

__all__ = ["RowShape", "emit_row_reduction", "row_place", "row_shape", "takes_row_reduction"]

#: Threads of a block, most of one that has a row for itself, and those of a multiprocessor so that it is never idle.
_THREADS, _LARGEST, _BUSY = 256, 1024, 1024
#: Steps of a thread from which on more threads share a row, and least ones where a row's parts get a block each.
_LONG, _LEAST = 16, 8
#: Steps of all rows together from which on a second launch costs little beside blocks that end at different times.
_MUCH = 1 << 21


@dataclass(frozen=True, slots=True)
class RowShape:
    """``width`` threads of a block of ``threads`` share a row, or one of its ``splits`` parts."""

    rows: int
    units: int
    threads: int
    width: int
    splits: int = 1

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.rows // (self.threads // self.width)), self.splits


def row_shape(target: GpuTarget, rows: int, units: int, *, split: bool = True, steps: int = _LONG) -> RowShape:
    """How threads are laid over ``rows`` rows of ``units`` steps; a thread takes ``steps`` of a row, or more where a
    block is too small. Without ``split`` rows stay whole."""
    chip = target.chip
    parts = min(-(-8 * chip.multiprocessors // rows), units // (_THREADS * _LEAST), 65535)
    if split and parts > 1 and (rows < chip.multiprocessors or rows * units >= _MUCH):
        return RowShape(rows, units, _THREADS, _THREADS, parts)
    longest = min(power_below(units), _LARGEST)
    width = min(target.warp, longest)
    while width < longest:
        idle = rows * width < _BUSY * chip.multiprocessors and units > 2 * width
        if units <= steps * width and not idle:
            break
        width *= 2
    threads = max(width, _THREADS)
    while threads > max(width, target.warp) and rows * width < threads * chip.multiprocessors:
        threads //= 2
    return RowShape(rows, units, threads, width)


def takes_row_reduction(kernel: GpuKernel) -> bool:
    """Any kernel of reductions, one of each per result, whose memory does not lie along the results."""
    plan = kernel_plan(kernel)
    return plan is not None and not plan.by_columns


def emit_row_reduction(kernel: GpuKernel) -> None:
    """One launch, or two where there are few long rows."""
    plan = kernel_plan(kernel)
    assert plan is not None
    groups = plan.ordered_folds()
    lanes = lanes_along(plan.accesses, groups[-1]) if groups else 1
    shape = row_shape(kernel.target, plan.rows, plan.steps // lanes)
    if shape.splits == 1:
        _emit(kernel, shape, lanes)
        return
    partials = partials_of(kernel, plan, plan.rows * shape.splits)
    _emit(kernel, shape, lanes, target=partials)
    _emit(kernel, row_shape(kernel.target, plan.rows, shape.splits, split=False), 1, source=partials)


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where a thread is: its row, whether there is such a row (None: always), and its number among the row's."""

    row: ir.Value
    valid: ir.Value | None
    number: ir.Value

    def leads(self, b: ir.IRBuilder) -> ir.Value:
        """Whether this thread writes what exists once per row."""
        first = b.icmp_unsigned("==", self.number, constant(I64, 0))
        return first if self.valid is None else b.and_(first, self.valid)


def row_place(b: ir.IRBuilder, thread: ir.Value, block: ir.Value, shape: RowShape) -> RowPlace:
    """The place of a thread (i32, as its block). Threads beyond the last row do the first one's work for nothing."""
    per_block = shape.threads // shape.width
    row, number = b.zext(block, I64), b.zext(thread, I64)
    if per_block == 1:
        return RowPlace(row, None, number)
    width = constant(I32, shape.width)
    row = b.add(b.mul(row, constant(I64, per_block)), b.zext(b.udiv(thread, width), I64))
    number = b.zext(b.urem(thread, width), I64)
    if shape.rows % per_block == 0:
        return RowPlace(row, None, number)
    valid = b.icmp_unsigned("<", row, constant(I64, shape.rows))
    return RowPlace(b.select(valid, row, constant(I64, 0)), valid, number)


def _emit(
    kernel: GpuKernel,
    shape: RowShape,
    lanes: int,
    source: Sequence[LaunchArray] = (),
    target: Sequence[LaunchArray] = (),
) -> None:
    stage = FoldStage(kernel, shape.threads, source, target)
    e, plan, code = stage.e, stage.plan, stage.e.code
    frame, shared = e.entry, SharedSpace()
    b = frame.builder
    place = row_place(b, code.thread(b), code.block(b), shape)
    worker = place.number
    if target:
        worker = b.add(b.mul(b.zext(code.block(b, 1), I64), constant(I64, shape.width)), worker)
    if source:
        step = stage.partial_step(b.mul(place.row, constant(I64, shape.units)), 1)
    else:
        bind_units(e, frame, plan.kept, place.row)
        step = _together(stage, stage.step(plan.ordered_folds(), lanes), lanes)
    totals = Totals(e, plan.reducers, 1)
    totals.start(frame)
    share = WorkShare(shape.units, shape.width * shape.splits, plan.unroll(), plan.ordered)
    walk(frame, share, worker, step, totals)
    own = list(zip(plan.reducers, totals.read(frame), strict=True))
    values = across_threads(e, frame, own, shape.width, shape.threads, shared)
    writing = IfBlock(frame, place.leads(b))
    if target:
        _write_partials(stage, writing.frame, place.row, shape, values)
    else:
        bind_units(e, writing.frame, plan.kept, place.row)
        stage.write_results(writing.frame, values)
    writing.close()
    e.finish()
    kernel.launch(stage.function, shape.grid, shared.nbytes)


def _together(stage: FoldStage, step: Step, lanes: int) -> Step:
    """The same step with its lanes folded: one value per thread needs the fewest registers."""
    if lanes == 1:
        return step

    def take(frame: Frame, unit: ir.Value, holds: ir.Value | None) -> list[list[Val]]:
        out = []
        for r, values in zip(stage.plan.reducers, step(frame, unit, holds), strict=True):
            wide = [Val(v.wide(lanes), v.frame, lanes) for v in values]
            out.append(across_lanes(stage.e, wide, r.computation, lanes, wide=r.wide, runs=r.ordered))
        return out

    return take


def _write_partials(
    stage: FoldStage, frame: Frame, row: ir.Value, shape: RowShape, values: Sequence[Sequence[Val]]
) -> None:
    b = frame.builder
    part = b.zext(stage.e.code.block(b, 1), I64)
    at = b.add(b.mul(row, constant(I64, shape.splits)), part)
    store_words(b, [v for row_values in values for v in row_values], stage.pointers(stage.target), at, 1)
