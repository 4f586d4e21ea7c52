"""Accumulators: elements of a loop's state that the loop only adds to.

Partial sums that lead to nothing else are reduced once behind the loop. The rewriting delays them
(`rewrite/accumulate.py`), and plans count them as often as the accumulator is reduced, not as often as the loop runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect
from shardc.partitioner.strategy.values import PartialAxes
from shardc.partitioner.unreduced.linear import Spread
from shardc.partitioner.unreduced.widen_sums import can_be_partial, is_narrow

__all__ = ["count_reductions", "find_accumulators"]


def find_accumulators(spread: Spread, loop: Instruction) -> dict[int, PartialAxes]:
    """Elements of a loop's state that could be partial, and how."""
    found: dict[int, PartialAxes] = {}
    for k, partial in spread.of_loop(loop).items():
        shape = loop.shape.elements[k]
        if shape.is_array and _keeps_precision(loop, k, partial):
            found[k] = partial
    while True:
        kept = {k: p for k, p in found.items() if _leads_back(spread, loop, k, found)}
        if len(kept) == len(found):
            return found
        found = kept


def _leads_back(spread: Spread, loop: Instruction, k: int, found: Mapping[int, PartialAxes]) -> bool:
    """Whether element ``k`` leads to nothing but elements that are partial in the same way."""
    after = spread.through_loop(loop, frozenset((k,)), found[k].reduction)
    return after is not None and all(found.get(j) == found[k] for j in after)


def _keeps_precision(loop: Instruction, k: int, partial: PartialAxes) -> bool:
    """Sums in floats narrower than 32 bits would lose more of partial values than of whole ones."""
    narrow = is_narrow(loop.shape.elements[k].dtype)
    return partial.reduction != "sum" or not narrow or can_be_partial(loop, k)


def count_reductions(module: Module, spread: Spread) -> dict[Instruction, float]:
    """How often a step reduces partial values of an instruction, where that is less often than it makes them: values
    that lead to nothing but accumulators of the loops around them. It counts bytes: where an accumulator is larger than
    such a value by a factor, its reduction counts as so many."""
    counts, found = count_executions(module).count, dict[Instruction, float]()
    for computation in reversed(module.computations):  # callers first: an outer loop may add up what an inner one does
        once = counts.get(computation, 0)
        for loop in computation:
            if loop.opcode == "while" and counts.get(loop.attrs["body"], 0) > once:
                partial = find_accumulators(spread, loop)
                behind = _reductions_behind(computation, loop, found, once)
                found.update(_reductions_within(spread, loop, partial, behind, counts[loop.attrs["body"]]))
    return found


def _reductions_behind(
    computation: Computation, loop: Instruction, found: Mapping[Instruction, float], once: float
) -> list[float]:
    """How often each element of a loop's result is reduced: each time, or as often as the sum that it is added to."""
    readers = [i for i in computation if loop in i.operands]
    if loop is computation.root or any(i.opcode != "get-tuple-element" for i in readers):
        return [once] * len(loop.shape.elements)
    times = [0.0] * len(loop.shape.elements)
    for i in readers:
        times[i.attrs["index"]] += found.get(i, once)
    return times


def _reductions_within(
    spread: Spread, loop: Instruction, partial: Mapping[int, PartialAxes], behind: Sequence[float], runs: float
) -> dict[Instruction, float]:
    """How often values in a loop's body are reduced that lead to nothing but accumulators, by how often these are
    reduced ``behind`` the loop: those for which that is less than the body ``runs``."""
    body: Computation = loop.attrs["body"]
    state = {
        i: partial[i.attrs["index"]]
        for i in body
        if i.opcode == "get-tuple-element" and i.operands[0] in body.parameters and i.attrs["index"] in partial
    }
    sources = spread.sources(body, state)
    found: dict[Instruction, float] = {}
    for i, ends in _find_ends(spread, body, partial, sources.keys()).items():
        if i in sources and i not in state:
            reached = {j for k in ends for j in spread.through_loop(loop, frozenset((k,)), partial[k].reduction) or ()}
            times = sum(behind[k] * loop.shape.elements[k].nbytes for k in sorted(reached)) / max(i.shape.nbytes, 1)
            if times < runs:
                found[i] = times
    return found


def _find_ends(
    spread: Spread, body: Computation, partial: Mapping[int, PartialAxes], sources: Set[Instruction]
) -> dict[Instruction, frozenset[int]]:
    """The arrays in a loop's body that lead linearly to accumulators and to nothing else, and to which of them."""
    ends: dict[Instruction, frozenset[int]] = {}
    elsewhere: set[Instruction] = set()
    for k, o in enumerate(body.root.operands):
        if k in partial:
            ends[o] = ends.get(o, frozenset()) | {k}
        else:
            elsewhere.add(o)
    for op in reversed(body.instructions):
        if op is body.root or not (op in ends or op in elsewhere or has_side_effect(op)):
            continue
        linear: Set[Instruction] = frozenset()
        if op in elsewhere or op not in ends or not op.shape.is_array:
            ends.pop(op, None)
        else:
            linear = _linear_operands(spread, op, {partial[k].reduction for k in ends[op]}, sources)
        for o in op.operands:
            if o in linear:
                ends[o] = ends.get(o, frozenset()) | ends[op]
            else:
                elsewhere.add(o)
    return ends


def _linear_operands(
    spread: Spread, op: Instruction, reductions: Set[str], sources: Set[Instruction]
) -> frozenset[Instruction]:
    """The operands that ``op`` may take partial together, read nowhere else by it."""
    for group in spread.groups(op, next(iter(reductions))) if len(reductions) == 1 else ():
        inside = {op.operands[n] for n in group}
        if not inside.isdisjoint(sources):
            return frozenset(inside - {o for n, o in enumerate(op.operands) if n not in group})
    return frozenset()
