"""Row plan: how a kernel walks the rows of its frame, so that each row is read while it lies in the cache.

A reduction whose result is broadcast back over its row must be complete before its readers start; so a row is walked in
a few loops, each with all reductions that can be made then, side by side, and the results that are ready. A value that
costs more to compute than to keep, and that a later loop reads too, is stored by the loop that computes it first: in
scratch memory of one row, or, if the row is long, in that of a result that is not written yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from shardc.compiler.lower.fuse.fusion_rules import is_cheap, is_elementwise
from shardc.compiler.lower.fuse.row_space import RowFrame, Spot, frame_of, is_row_reduction, roots_of, spots_in
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["RowOutput", "RowPlan", "plan_rows"]

#: Arithmetic, in operations as cheap as an addition, from which on a value is kept rather than computed again.
_WORTH_KEEPING = 8
#: What an operation that is not cheap counts.
_EXPENSIVE = 8
#: Most bytes of scratch memory that a kernel keeps for a row.
_MOST_SCRATCH = 64 << 10


@dataclass(frozen=True, slots=True)
class RowOutput:
    """A result: written by loop ``loop``, or, one element per row, after all loops (None)."""

    value: Instruction
    loop: int | None


@dataclass(frozen=True, slots=True)
class RowPlan:
    """``loops`` lists the reductions of each loop. ``kept`` says which values are stored for later loops: the loop that
    does it and the number of the result whose row takes them (None: scratch memory; a result itself: its own row).

    ``reads`` is the last loop that reads a parameter at the element (-1: only once per row); None: at other indices.
    """

    frame: RowFrame
    spots: Mapping[Instruction, Spot | None]
    loops: tuple[tuple[Instruction, ...], ...]
    outputs: tuple[RowOutput, ...]
    kept: Mapping[Instruction, tuple[int, int | None]]
    reads: Mapping[Instruction, int | None]

    def first_write(self, output: int) -> int:
        """The first loop that writes to the memory of a result with an element for every index."""
        loops = [loop for loop, place in self.kept.values() if place == output]
        own = self.outputs[output].loop
        assert own is not None
        return min([own, *loops])


@lru_cache(maxsize=256)
def plan_rows(computation: Computation) -> RowPlan | None:
    """The plan of a fused computation; None where it has no rows, or where nothing is gained by walking them."""
    frame = frame_of(computation)
    if frame is None or not frame.walks_rows:
        return None
    spots = spots_in(computation, frame)
    if any(spots[r] is None for r in roots_of(computation)):
        return None  # a result that another member reads at other indices
    reductions = [i for i in computation if _is_part(i, spots)]
    if not reductions or (len(reductions) == 1 and not any(spots[r] == frame.full for r in roots_of(computation))):
        return None
    refused: set[Instruction] = set()
    while True:
        planner = _RowPlanner(computation, frame, spots, reductions, refused)
        plan = planner.plan()
        unplaced = planner.wanted.keys() - plan.kept.keys()
        if not unplaced:
            return plan
        refused |= unplaced


def _is_part(i: Instruction, spots: Mapping[Instruction, Spot | None]) -> bool:
    """Whether the instruction is one of the reductions over the rows."""
    return is_row_reduction(i) and spots.get(i) is not None and spots[i.operands[0]] is not None


@dataclass(slots=True)
class _RowPlanner:
    """``refused`` values are computed again wherever they are read."""

    computation: Computation
    frame: RowFrame
    spots: Mapping[Instruction, Spot | None]
    reductions: Sequence[Instruction]
    refused: Set[Instruction]
    ready: dict[Instruction, int] = field(default_factory=dict)
    weights: dict[Instruction, int] = field(default_factory=dict)
    first: dict[Instruction, int] = field(default_factory=dict)
    reads: dict[Instruction, int | None] = field(default_factory=dict)
    wanted: dict[Instruction, tuple[int, int]] = field(default_factory=dict)

    def plan(self) -> RowPlan:
        self._measure()
        roots = roots_of(self.computation)
        full = [self.spots[r] == self.frame.full for r in roots]
        outputs = tuple(RowOutput(r, self.ready[r] if f else None) for r, f in zip(roots, full, strict=True))
        count = 1 + max([*(self.ready[r.operands[0]] for r in self.reductions), *(o.loop or 0 for o in outputs)])
        loops = tuple(tuple(r for r in self.reductions if self.ready[r.operands[0]] == k) for k in range(count))
        for p in self.computation.parameters:
            if p in self.spots:
                self.reads[p] = None if self.spots[p] is None else -1
        written: set[Instruction] = set()
        for number, reductions in enumerate(loops):
            results = [o.value for o in outputs if o.loop == number]
            self._walk([*(r.operands[0] for r in reductions), *results], number, written)
            written.update(results)
        return RowPlan(self.frame, self.spots, loops, outputs, self._places(outputs), self.reads)

    def _measure(self) -> None:
        """How many loops must have run before a value can be computed, and what computing it costs."""
        parts = frozenset(self.reductions)
        for i in self.computation:
            if i in self.spots:
                self.ready[i] = max((self.ready[o] for o in i.operands), default=0) + (i in parts)
                own = 0 if not is_elementwise(i) else 1 if is_cheap(i) else _EXPENSIVE
                total = own + sum(self.weights[o] for o in dict.fromkeys(i.operands))
                self.weights[i] = min(total, _WORTH_KEEPING) if self._varies(i) else 0

    def _varies(self, i: Instruction) -> bool:
        """Whether a value differs along the row."""
        spot = self.spots[i]
        return spot is None or not set(spot).isdisjoint(self.frame.reduced)

    def _walk(self, values: Iterable[Instruction], loop: int, written: Set[Instruction]) -> None:
        """Visit all that ``loop`` computes for ``values``; what an earlier loop should have kept is noted."""
        stack = list(values)
        seen: set[Instruction] = set()
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            earlier = self.first.setdefault(i, loop)
            worth = i not in self.refused and (i in written or self.weights[i] >= _WORTH_KEEPING)
            if earlier < loop and worth and self.spots[i] == self.frame.full:
                self.wanted[i] = (earlier, loop)
                continue
            if self.reads.get(i) is not None:
                self.reads[i] = loop
            stack.extend(o for o in i.operands if self._varies(o))

    def _places(self, outputs: Sequence[RowOutput]) -> dict[Instruction, tuple[int, int | None]]:
        """Where wanted values are kept, as far as there is room."""
        own = {o.value: n for n, o in enumerate(outputs) if o.loop is not None}
        free = [n for n in own.values() if outputs[n].value not in self.wanted]
        left = _MOST_SCRATCH
        places: dict[Instruction, tuple[int, int | None]] = {}
        for i, (first, last) in self.wanted.items():
            if i in own:
                places[i] = (first, own[i])
                continue
            nbytes = self.frame.columns * i.shape.dtype.nbytes
            if nbytes <= left:
                left -= nbytes
                places[i] = (first, None)
                continue
            place = next((n for n in free if self._fits(i, first, last, outputs[n])), None)
            if place is not None:
                free.remove(place)
                places[i] = (first, place)
        return places

    def _fits(self, i: Instruction, first: int, last: int, output: RowOutput) -> bool:
        """Whether ``i`` may use a result's row from loop ``first`` to ``last``. The result must still be able to take
        an operand's memory."""
        assert output.loop is not None
        if output.loop < last or output.value.shape.dtype is not i.shape.dtype:
            return False
        at_element = [p for p in self.reads if self.spots[p] == self.frame.full]
        return all((self.reads[p] or 0) <= first for p in at_element)
