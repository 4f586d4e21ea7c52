"""How workers (threads, of one block or of many) share the steps of a reduction, the same for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.elements.frames import ForLoop, Frame, Val
from shardc.compiler.gpu.reductions.accumulate import Totals
from shardc.native.math.vector import I64, constant

__all__ = ["Step", "WorkShare", "walk"]

#: The accumulators' new values of one step, per reduction. The step's number is an i64 in the frame; where the i1 does
#: not hold, it is a step of somebody else, done for nothing (None: it always holds).
Step = Callable[[Frame, ir.Value, ir.Value | None], list[list[Val]]]


@dataclass(frozen=True, slots=True)
class WorkShare:
    """``units`` steps among ``workers``: neighbours take neighbouring steps, so that memory is read as it lies, or
    (``ordered``) each a run of its own. ``unroll`` steps of a worker are under way at once."""

    units: int
    workers: int
    unroll: int
    ordered: bool = False


def walk(frame: Frame, share: WorkShare, worker: ir.Value, step: Step, totals: Totals) -> None:
    """Take one worker's steps (i64 ``worker``) into ``totals``, which have been started.

    All workers run the same code; where the steps do not come out even, the last one repeats a step for nothing.
    """
    main, rest = divmod(share.units, share.workers)
    unit = _Unit(frame, share, worker)
    whole = main // share.unroll * share.unroll
    if whole:
        loop = ForLoop(frame, whole, share.unroll)
        b = loop.frame.builder
        first: bool | ir.Value = True
        if whole > share.unroll:
            first = b.icmp_unsigned("==", loop.index, constant(I64, 0))
        numbers = [unit.at(loop.frame, loop.index, k) for k in range(share.unroll)]
        totals.add(loop.frame, [step(loop.frame, n, None) for n in numbers], first)
        loop.close()
    zero = constant(I64, 0)
    if main > whole:
        numbers = [unit.at(frame, zero, k) for k in range(whole, main)]
        totals.add(frame, [step(frame, n, None) for n in numbers], first=not whole)
    if rest:
        b = frame.builder
        last = unit.at(frame, zero, main)
        holds = b.icmp_unsigned("<", last, unit.end)
        safe = b.select(holds, last, zero)
        totals.add(frame, [step(frame, safe, holds)], holds=holds)


class _Unit:
    """The numbers of a worker's steps; ``end`` is past its last."""

    def __init__(self, frame: Frame, share: WorkShare, worker: ir.Value) -> None:
        b = frame.builder
        self._share, self._first, self.end = share, worker, constant(I64, share.units)
        if share.ordered:
            units, workers = constant(I64, share.units), constant(I64, share.workers)
            self._first = b.udiv(b.mul(worker, units), workers)
            self.end = b.udiv(b.mul(b.add(worker, constant(I64, 1)), units), workers)

    def at(self, frame: Frame, k: ir.Value, more: int) -> ir.Value:
        """The number of the worker's step ``k + more``."""
        b, stride = frame.builder, 1 if self._share.ordered else self._share.workers
        start = b.add(self._first, b.mul(k, constant(I64, stride)))
        return b.add(start, constant(I64, more * stride))
