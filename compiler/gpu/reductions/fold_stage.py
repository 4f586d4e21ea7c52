"""Stages of reductions: what is common to the launches that fold operands, and to those that fold partial results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.affine import Expr, VarSource, linear
from shardc.compiler.elements.elements import FoldUse
from shardc.compiler.elements.fold_emitter import round_element
from shardc.compiler.elements.frames import Frame, Val, deepest
from shardc.compiler.elements.results import with_dims
from shardc.compiler.gpu.function import GpuEmitter, GpuFunction, GpuKernel
from shardc.compiler.gpu.launches import LaunchArray
from shardc.compiler.gpu.reductions.accumulate import load_words, word_bytes
from shardc.compiler.gpu.reductions.fold_plan import FoldPlan, Group, bind_units, plan_folds
from shardc.compiler.gpu.reductions.walk import Step
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, constant

__all__ = ["FoldStage", "kernel_plan", "partials_of"]


def kernel_plan(kernel: GpuKernel, source: VarSource | None = None) -> FoldPlan | None:
    """The plan of a kernel's reductions, or None where it is not made of such."""
    return plan_folds(source or VarSource(), kernel.computation, kernel.leaves(), kernel.result_shapes)


def partials_of(kernel: GpuKernel, plan: FoldPlan, count: int) -> list[LaunchArray]:
    """Scratch memory for ``count`` accumulators of each part."""
    return [kernel.scratch(count * word_bytes(t)) for r in plan.reducers for t in r.part_types]


@dataclass
class FoldStage:
    """One launch's function. It folds the operands, or what ``source`` holds of a launch before; it gives the results,
    or (``target``) partial ones."""

    kernel: GpuKernel
    threads: int
    source: Sequence[LaunchArray] = ()
    target: Sequence[LaunchArray] = ()

    def __post_init__(self) -> None:
        results = () if self.target else self.kernel.results
        arrays = [*self.kernel.operands, *self.source, *self.target, *results]
        self.function: GpuFunction = self.kernel.function(arrays, self.threads)
        self.e: GpuEmitter = self.function.emitter(self.kernel.leaves())
        plan = kernel_plan(self.kernel, self.e.source)
        assert plan is not None, "it had one before"
        self.plan: FoldPlan = plan

    def pointers(self, arrays: Sequence[LaunchArray]) -> list[ir.Value]:
        return [self.function.pointer(a) for a in arrays]

    def step(self, groups: Sequence[Group], lanes: int) -> Step:
        """A step over the operands: ``lanes`` neighbours of the positions that ``groups`` count."""

        def take(frame: Frame, unit: ir.Value, holds: ir.Value | None) -> list[list[Val]]:
            bind_units(self.e, frame, groups, unit, lanes)
            return [list(u.fold.element(self.e, self.plan.positions.index, ())) for u in self.plan.uses]

        return take

    def partial_step(self, start: ir.Value, stride: int, lanes: int = 1) -> Step:
        """A step over what an earlier launch has left: step n lies ``n * stride`` elements behind ``start``."""
        pointers = self.pointers(self.source)

        def take(frame: Frame, unit: ir.Value, holds: ir.Value | None) -> list[list[Val]]:
            at, rest = frame.builder.add(start, frame.builder.mul(unit, constant(I64, stride))), iter(pointers)
            return [
                load_words(frame, r.dtypes, [next(rest) for _ in r.part_types], at, lanes) for r in self.plan.reducers
            ]

        return take

    def write_results(self, frame: Frame, totals: Sequence[Sequence[Val]], lanes: int = 1) -> None:
        """Finish the folds and store every result at the index that is bound."""
        e, plan = self.e, self.plan
        for use, total in zip(plan.uses, totals, strict=True):
            done = self._finished(use, list(total))
            e.folded[use.key] = lambda done=done: done  # type: ignore[misc]
        shapes = self.kernel.result_shapes
        places = [with_dims(plan.results.index, plan.dims, s.dims) for s in shapes]
        values = [f(e, index, ()) for f, index in zip(plan.elements, places, strict=True)]
        for value, index, shape, result in zip(values, places, shapes, self.kernel.results, strict=True):
            self._store(frame, value, linear(index, shape.dims), self.function.pointer(result), shape.dtype, lanes)

    def _store(self, frame: Frame, value: Val, offset: Expr, to: ir.Value, dtype: DType, lanes: int) -> None:
        """Write neighbours, which lie apart in a result whose dimensions are in another order than memory's."""
        at, step, _, other = self.e.split(offset)
        if lanes == 1 or (step == 1 and other is None):
            b = deepest([at, value], frame).builder
            memory.store(b, value.wide(lanes), to, at.value, dtype, None)
            return
        at = self.e.index(offset)
        b = deepest([at, value], frame).builder
        memory.scatter(b, value.wide(lanes), to, at.wide(lanes)[0], dtype)

    def _finished(self, use: FoldUse, total: list[Val]) -> list[Val]:
        fold = use.fold
        if fold.init is not None:
            total = self.e.call(fold.reducer, [*fold.init(self.e), *total], wide=True)
        return [round_element(self.e, v, d) for v, d in zip(total, fold.dtypes, strict=True)]
