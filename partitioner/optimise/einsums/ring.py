"""Rings: parts of an array pass from member to member of a group while each member computes with the part it has.

Step k of a gather has part ``(p + k) mod n`` on the member at position p, of a scatter the sum for part
``(p + k + 1) mod n``. In both directions at once there are half as many steps, of two parts each.
(Wang et al., Overlap Communication with Dependent Computation via Decomposition, ASPLOS 2023.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DTYPES, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.optimise.einsums.product import EinsumIndex, multiply_parts

__all__ = ["Ring", "RingReader", "gather_ring", "scatter_ring"]

_INDEX = array_shape(DTYPES["s32"])
#: (emitter, carried values, fixed values, number of the step) -> carried values
Step = Callable[[Emitter, list[Instruction], list[Instruction], Instruction], list[Instruction]]
#: (emitter, fixed values, first element) -> that part of what is scattered
Produce = Callable[[Emitter, list[Instruction], Instruction], Instruction]


@dataclass(frozen=True, slots=True)
class Ring:
    """The members of ``groups`` in a circle, each with a part of ``size`` elements; ``both``: in both directions."""

    groups: AxisGroups
    size: int
    both: bool = False

    @property
    def members(self) -> int:
        return self.groups.group_size

    def pass_on(self, e: Emitter, x: Instruction, *, back: bool = False) -> Instruction:
        """What the next member had; with ``back`` what the one before had."""
        n = self.members
        pairs = tuple((s, (s + (1 if back else -1)) % n) for s in range(n))
        return e.permute(x, AxisPairs(self.groups.mesh, self.groups.axes, pairs))

    def start(self, e: Emitter, position: Instruction, step: Instruction, *, back: bool = False) -> Instruction:
        """The first element of the part that is ``step`` parts away from this member's."""
        at = e.add("subtract" if back else "add", _INDEX, position, step)
        at = e.add("remainder", _INDEX, e.plus(at, self.members if back else 0), e.index(self.members))
        return e.scale(at, self.size)

    def position(self, e: Emitter) -> Instruction:
        return e.coordinate(e.table.atoms(self.groups.axes))


@dataclass(frozen=True, slots=True)
class RingReader:
    """What reads a gathered array: a product ``dot`` whose operand ``side`` it is, ``other`` being the second one; or
    with no ``dot`` the array itself, put together along ``dim``."""

    like: Instruction
    dim: int
    dot: Instruction | None = None
    side: int = 0
    cut: EinsumIndex | None = None
    other: Instruction | None = None

    def begin(self, e: Emitter) -> Instruction:
        """What the parts are written to, or added to."""
        shape = self.like.shape
        dtype = shape.dtype.accumulator if self._adds else shape.dtype
        return e.splat(e.scalar(0, dtype), shape.dims)

    def take(
        self, e: Emitter, total: Instruction, part: Instruction, start: Instruction, other: Instruction, size: int
    ) -> Instruction:
        """``total`` with what this part gives."""
        if self.dot is None or self.cut is None:
            return _write_part(e, total, part, self.dim, start)
        operands = [part, other] if self.side == 0 else [other, part]
        made = multiply_parts(e, self.dot, self.cut, operands, start, size, self.side)
        if self.cut.result is not None:
            return _write_part(e, total, made, self.cut.result, start)
        return e.add("add", total.shape, total, made)

    def end(self, e: Emitter, total: Instruction) -> Instruction:
        shape = self.like.shape.plain
        return total if total.shape.dtype is shape.dtype else e.add("convert", shape, total)

    @property
    def _adds(self) -> bool:
        return self.cut is not None and self.cut.result is None


def _write_part(e: Emitter, total: Instruction, part: Instruction, dim: int, start: Instruction) -> Instruction:
    starts = [start if d == dim else e.index(0) for d in range(total.shape.rank)]
    return e.add("dynamic-update-slice", total.shape, total, part, *starts)


def gather_ring(e: Emitter, ring: Ring, x: Instruction, readers: Sequence[RingReader]) -> list[Instruction]:
    """What each reader makes of the parts ``x`` of all members, in place of an all-gather of them."""
    n = ring.members
    fixed = [ring.position(e), *(r.other if r.other is not None else x for r in readers)]
    totals = [r.begin(e) for r in readers]

    def take(
        e: Emitter,
        totals: list[Instruction],
        part: Instruction,
        fixed: list[Instruction],
        step: Instruction,
        back: bool,
    ) -> list[Instruction]:
        start = ring.start(e, fixed[0], step, back=back)
        given = zip(readers, totals, fixed[1:], strict=True)
        return [r.take(e, total, part, start, other, ring.size) for r, total, other in given]

    def one_way(
        e: Emitter, carried: list[Instruction], fixed: list[Instruction], step: Instruction
    ) -> list[Instruction]:
        part, *totals = carried
        return [ring.pass_on(e, part), *take(e, totals, part, fixed, step, False)]

    def two_ways(
        e: Emitter, carried: list[Instruction], fixed: list[Instruction], step: Instruction
    ) -> list[Instruction]:
        ahead, behind, *totals = carried
        passed = [ring.pass_on(e, ahead), ring.pass_on(e, behind, back=True)]
        totals = take(e, totals, ahead, fixed, step, False)
        return [*passed, *take(e, totals, behind, fixed, step, True)]

    if not ring.both:
        part, *totals = _repeat(e, n - 1, 0, [x, *totals], fixed, one_way)
        totals = take(e, totals, part, fixed, e.index(n - 1), False)
    else:
        half = (n - 1) // 2
        carried = [ring.pass_on(e, x), ring.pass_on(e, x, back=True), *take(e, totals, x, fixed, e.index(0), False)]
        ahead, behind, *totals = _repeat(e, half - 1, 1, carried, fixed, two_ways)
        last = ring.pass_on(e, ahead) if n % 2 == 0 else None
        totals = take(e, totals, ahead, fixed, e.index(half), False)
        totals = take(e, totals, behind, fixed, e.index(half), True)
        if last is not None:
            totals = take(e, totals, last, fixed, e.index(half + 1), False)
    return [r.end(e, t) for r, t in zip(readers, totals, strict=True)]


def scatter_ring(e: Emitter, ring: Ring, produce: Produce, values: Sequence[Instruction]) -> Instruction:
    """The sum of all members' parts for this one, in place of a reduce-scatter of what ``produce`` makes of values."""
    n = ring.members
    fixed = [ring.position(e), *values]

    def part(e: Emitter, fixed: list[Instruction], away: Instruction, back: bool) -> Instruction:
        """The part that ``away`` moves ahead (``back``: behind) of this member's will bring to it."""
        return produce(e, fixed[1:], ring.start(e, fixed[0], away, back=back))

    def added(e: Emitter, total: Instruction, made: Instruction, back: bool) -> Instruction:
        return e.add("add", made.shape, ring.pass_on(e, total, back=back), made)

    def one_way(
        e: Emitter, carried: list[Instruction], fixed: list[Instruction], step: Instruction
    ) -> list[Instruction]:
        away = e.add("subtract", _INDEX, e.index(n - 1), step)
        return [added(e, carried[0], part(e, fixed, away, True), False)]

    def two_ways(
        e: Emitter, carried: list[Instruction], fixed: list[Instruction], step: Instruction
    ) -> list[Instruction]:
        away = e.add("subtract", _INDEX, e.index((n - 1) // 2), step)
        ahead, behind = (part(e, fixed, away, back) for back in (True, False))
        return [added(e, carried[0], ahead, False), added(e, carried[1], behind, True)]

    if not ring.both:
        first = part(e, fixed, e.index(n - 1), True)
        return _repeat(e, n - 1, 1, [first], fixed, one_way)[0]
    half = (n - 1) // 2
    ahead = part(e, fixed, e.index(n - 1 - half), True)
    if n % 2 == 0:
        ahead = added(e, ahead, part(e, fixed, e.index(half), True), False)
    behind = part(e, fixed, e.index(half), False)
    ahead, behind = _repeat(e, half - 1, 1, [ahead, behind], fixed, two_ways)
    own = part(e, fixed, e.index(0), False)
    both = e.add("add", own.shape, ring.pass_on(e, ahead), ring.pass_on(e, behind, back=True))
    return e.add("add", own.shape, both, own)


def _repeat(
    e: Emitter, trips: int, first: int, carried: list[Instruction], fixed: list[Instruction], step: Step
) -> list[Instruction]:
    """``step`` with the numbers ``first``, ``first + 1``, ...: a loop where there are several."""
    if trips <= 0:
        return carried
    if trips == 1:
        return step(e, carried, fixed, e.index(first))
    start = [e.index(first), *carried, *fixed]
    state = tuple_shape(*(x.shape.plain for x in start))
    inside, test = _inner(e), _inner(e)
    p = inside.add("parameter", state, index=0)
    counter, *given = (inside.add("get-tuple-element", s, p, index=k) for k, s in enumerate(state.elements))
    made = step(inside, given[: len(carried)], given[len(carried) :], counter)
    root = inside.add("tuple", state, inside.plus(counter, 1), *made, *given[len(carried) :])
    body = Computation(e.names.fresh("ring_body"), inside.instructions, root)
    q = test.add("parameter", state, index=0)
    now = test.add("get-tuple-element", _INDEX, q, index=0)
    less = test.add("compare", array_shape("pred"), now, test.index(first + trips), direction="LT")
    condition = Computation(e.names.fresh("ring_condition"), test.instructions, less)
    loop = e.add("while", state, e.add("tuple", state, *start), condition=condition, body=body)
    return [e.add("get-tuple-element", x.shape.plain, loop, index=k + 1) for k, x in enumerate(carried)]


def _inner(e: Emitter) -> Emitter:
    inner = Emitter(e.table, e.reducers, e.names)
    inner.metadata, inner.origin = e.metadata, e.origin
    return inner
