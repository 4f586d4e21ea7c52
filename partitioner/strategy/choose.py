"""Choosing how one operation is split: axes for each factor, by modelled cost.

A candidate starts from the result's propagated layout or from one operand's present layout, and adds compatible axes of
the others. If an operand is partial and the operation is linear in it, the result may stay partial. The best candidate
sends the fewest bytes, then uses the fewest collectives, then has the least local work. At equal cost, a value stays
partial: a later reduction can merge with others or become a reduce-scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from shardc.costs.machines.device import Device
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.strategy.pieces import LoopPieces
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, TensorFactors

__all__ = [
    "Computes",
    "SplitChoice",
    "SplitOperand",
    "SplitProblem",
    "assign",
    "choose_split",
    "common_partial",
    "cost_of",
    "lay_out",
    "legal",
    "move_away",
    "own_cost",
    "rank_splits",
    "volume",
]


@dataclass(frozen=True, slots=True)
class SplitOperand:
    """An operand in a choice: its existing layouts, or ``free`` of cost in every layout. ``shared``: other operations
    read it too, so its reduced form costs nothing extra here. ``repetitions``: the operand is the same in that many
    runs, and one move serves all of them, unless they read its ``pieces``.
    """

    dims: tuple[int, ...]
    nbytes: int
    layouts: tuple[AxisLayout, ...]
    wanted: AxisLayout
    free: bool = False
    shared: bool = False
    repetitions: int = 1
    pieces: LoopPieces | None = None


@dataclass(frozen=True, slots=True)
class SplitProblem:
    """Everything that the choice for one operation depends on, so that equal problems share one answer.

    ``usable`` are the factors that may be split; ``linear`` the groups of operands in which the operation is jointly
    linear (for the reduction that those operands are partial with); ``results`` are (dimensions, bytes per element,
    wanted layout) per result; ``sends`` is the cost of the operation's own collectives, most of them of the opcode
    ``sends_by``, ``computes`` the time that it computes, for operations whose strategies differ in that. Atoms in
    ``barred`` split no factor.
    """

    rule: FactorRule
    usable: frozenset[int]
    operands: tuple[SplitOperand, ...]
    results: tuple[tuple[tuple[int, ...], int, AxisLayout], ...]
    linear: tuple[tuple[int, ...], ...] = ()
    sends: Sends | None = None
    computes: Computes | None = None
    barred: Atoms = ()
    sends_by: str = "collective-permute"


#: Bytes and collectives of the operation itself, when its factors have these axes.
Sends = Callable[[AxisTable, SplitProblem, tuple[Atoms, ...]], tuple[float, int]]
#: Seconds that it computes on a device, when its factors have these axes.
Computes = Callable[[AxisTable, SplitProblem, tuple[Atoms, ...], Device], float]


@dataclass(frozen=True, slots=True, eq=False)
class SplitChoice:
    """Axes per factor, the resulting layouts of operands and results, and the axes over which values stay partial.

    Compared by identity: choices for different problems may look alike.
    """

    factors: tuple[Atoms, ...]
    operands: tuple[AxisLayout, ...]
    results: tuple[AxisLayout, ...]
    carried: Atoms
    cost: tuple[float, int]


#: At most so many operands start a candidate of their own (the largest ones).
_STARTS = 4


def choose_split(table: AxisTable, resharder: Resharder, problem: SplitProblem) -> SplitChoice:
    """The best `SplitChoice` for one operation."""
    best: SplitChoice | None = None
    best_rank: _Rank | None = None
    for rank, choice in _rank_all(table, resharder, problem):
        if best_rank is None or rank < best_rank:
            best, best_rank = choice, rank
    assert best is not None
    return best


def rank_splits(table: AxisTable, resharder: Resharder, problem: SplitProblem) -> list[SplitChoice]:
    """Everything that `choose_split` compares, the best first, each assignment of axes once."""
    found = sorted(_rank_all(table, resharder, problem), key=lambda pair: pair[0])
    return list({(c.factors, c.carried): c for _, c in reversed(found)}.values())[::-1]


#: Cost and number of collectives, 0 for what is carried on, local work, number among the candidates.
_Rank = tuple[float, float, int, float, int]


def _rank_all(table: AxisTable, resharder: Resharder, problem: SplitProblem) -> Iterator[tuple[_Rank, SplitChoice]]:
    """Every candidate with its rank; lower is better."""
    for group in ((), *problem.linear):
        partial = [problem.operands[i] for i in group if problem.operands[i].layouts[0].unreduced]
        carried, reduction = common_partial([o.layouts[0] for o in partial])
        if group and not carried:
            continue
        single = not any(o.shared and not o.free for o in partial)
        seen: set[tuple[Atoms, ...]] = set()
        for number, factors in enumerate(_candidates(table, problem, carried)):
            if factors in seen:
                continue
            seen.add(factors)
            choice = _evaluate(table, resharder, problem, factors, (group, carried, reduction))
            eager = 0 if group and single else 1
            yield (*choice.cost, eager, volume(table, problem.rule, factors), number), choice


def _candidates(table: AxisTable, problem: SplitProblem, carried: Atoms) -> Iterator[tuple[Atoms, ...]]:
    """Axes per factor, starting from each tensor; also with the axes of dimensions that must be whole moved to other
    factors."""
    layouts = (*(o.layouts[0] for o in problem.operands), *(wanted for _, _, wanted in problem.results))
    for order in _orders(problem):
        factors = assign(table, problem, layouts, order, carried)
        yield factors
        if order:
            away = move_away(table, problem, factors, carried, (order[0], layouts[order[0]]))
            if away is not factors:
                yield away


def move_away(
    table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...], carried: Atoms, first: tuple[int, AxisLayout]
) -> tuple[Atoms, ...]:
    """``factors`` with the unused axes of a tensor's layout added to its factor with the most room.

    ``first`` is (tensor, its layout); the factor is one that passes through.
    """
    rule, (tensor, layout) = problem.rule, first
    placed = {*(a for atoms in factors for a in atoms), *carried, *problem.barred}
    left = tuple(a for atoms in layout.dims for a in atoms if a not in placed)
    if not left:
        return factors
    own = {f for dim in rule.tensors[tensor] for f in dim}
    free = [f for f in rule.of_kind(FactorKind.PASS_THROUGH) if f in own and f in problem.usable]
    room = {f: rule.factors[f].size // table.extent(factors[f]) for f in free}
    best = max(free, key=lambda f: (room[f], -f), default=None)
    if best is None or room[best] < 2:
        return factors
    chosen = list(factors)
    for a in left:
        if rule.factors[best].size >= table.extent((*chosen[best], a)):
            chosen[best] = (*chosen[best], a)
    return legal(table, rule, chosen)


def common_partial(layouts: Sequence[AxisLayout]) -> tuple[Atoms, str]:
    """Atoms over which all of ``layouts`` are partial in the same way, and the reduction."""
    if not layouts or len({x.reduction for x in layouts}) > 1:
        return (), "sum"
    common = set(layouts[0].unreduced).intersection(*(x.unreduced for x in layouts))
    return tuple(sorted(common)), layouts[0].reduction


def _orders(problem: SplitProblem) -> Iterator[tuple[int, ...]]:
    """Orders in which tensors (operands, then results) determine axes; the omitted ones follow. Results determine them
    alone only if nothing is reduced, since repeating a product on every device is no acceptable way to send less.
    """
    n = len(problem.operands)
    results = tuple(range(n, n + len(problem.results)))
    sizes = [0 if o.free else math.prod(o.dims) * o.nbytes for o in problem.operands]
    by_size = sorted((i for i in range(n) if not problem.operands[i].free), key=lambda i: (-sizes[i], i))
    yield (*results, *by_size)
    if not problem.rule.of_kind(FactorKind.REDUCTION):
        yield results
    starts = [i for i in by_size if any(problem.operands[i].layouts[0].dims)]
    for i in starts[:_STARTS]:
        rest = tuple(j for j in by_size if j != i)
        yield (i, *results, *rest)
        yield (i, *rest, *results)


def assign(
    table: AxisTable, problem: SplitProblem, layouts: Sequence[AxisLayout], order: Sequence[int], banned: Atoms
) -> tuple[Atoms, ...]:
    """Axes per factor if tensors determine them in ``order``; each atom splits one factor. ``layouts`` are those of all
    tensors, operands first; atoms in ``banned`` split none.
    """
    rule, tensors = problem.rule, problem.rule.tensors
    chosen: list[Atoms] = [()] * len(rule.factors)
    used = {*banned, *problem.barred}
    for t in order:
        for indices, atoms in zip(tensors[t], layouts[t].dims, strict=True):
            for factor, part in _distribute(table, rule, indices, atoms):
                present = chosen[factor]
                if factor not in problem.usable or part[: len(present)] != present:
                    continue
                for a in part[len(present) :]:
                    if a in used:
                        break
                    used.add(a)
                    chosen[factor] = (*chosen[factor], a)
    return legal(table, rule, chosen)


def _distribute(
    table: AxisTable, rule: FactorRule, indices: tuple[int, ...], atoms: Atoms
) -> Iterator[tuple[int, Atoms]]:
    """Share the axes of a dimension among its factors, major to minor."""
    if len(indices) == 1:
        yield indices[0], atoms
        return
    position = 0
    for factor in indices:
        size = rule.factors[factor].size
        extent, start = 1, position
        while position < len(atoms) and size % (extent * table.extents[atoms[position]]) == 0:
            extent *= table.extents[atoms[position]]
            position += 1
        yield factor, atoms[start:position]
        if extent != size:
            return


def legal(table: AxisTable, rule: FactorRule, chosen: list[Atoms]) -> tuple[Atoms, ...]:
    """In a dimension of several factors, a minor one may be split only below fully split ones, and all evenly."""
    changed = True
    while changed:
        changed = False
        for tensor in rule.tensors:
            for indices in tensor:
                if len(indices) > 1 and _clip(table, rule, indices, chosen):
                    changed = True
    return tuple(chosen)


def _clip(table: AxisTable, rule: FactorRule, indices: tuple[int, ...], chosen: list[Atoms]) -> bool:
    changed = False
    open_above = False
    for factor in indices:
        size = rule.factors[factor].size
        if size == 1 and not chosen[factor]:
            continue
        keep = 0
        if not open_above:
            while keep < len(chosen[factor]) and size % table.extent(chosen[factor][: keep + 1]) == 0:
                keep += 1
        if keep < len(chosen[factor]):
            chosen[factor] = chosen[factor][:keep]
            changed = True
        open_above = open_above or table.extent(chosen[factor]) != size
    return changed


def dims_of(tensor: TensorFactors, factors: Sequence[Atoms]) -> tuple[Atoms, ...]:
    """Axes per dimension of a tensor when factors have these axes."""
    return tuple(factors[d[0]] if len(d) == 1 else tuple(a for f in d for a in factors[f]) for d in tensor)


def _evaluate(
    table: AxisTable,
    resharder: Resharder,
    problem: SplitProblem,
    factors: tuple[Atoms, ...],
    carry: tuple[tuple[int, ...], Atoms, str],
) -> SplitChoice:
    """Layouts and cost of one assignment."""
    operands, results = lay_out(table, problem.rule, factors, carry)
    cost = cost_of(table, resharder, problem, factors, (operands, results))
    return SplitChoice(factors, operands, results, carry[1], cost)


def cost_of(
    table: AxisTable,
    resharder: Resharder,
    problem: SplitProblem,
    factors: tuple[Atoms, ...],
    ends: tuple[tuple[AxisLayout, ...], tuple[AxisLayout, ...]],
) -> tuple[float, int]:
    """The communication cost of an assignment: operands move to the layouts ``ends[0]``, results from ``ends[1]`` to
    the wanted layouts."""
    wire, count = 0.0, 0
    for operand, layout in zip(problem.operands, ends[0], strict=True):
        if not operand.free:
            more = _operand_cost(table, resharder, operand, layout)
            wire, count = wire + more[0], count + more[1]
    more = own_cost(table, resharder, problem, factors)
    wire, count = wire + more[0], count + more[1]
    for layout, (dims, nbytes, wanted) in zip(ends[1], problem.results, strict=True):
        more = resharder.cost(dims, nbytes, layout, wanted)
        wire, count = wire + more[0], count + more[1]
    return wire, count


def own_cost(
    table: AxisTable, resharder: Resharder, problem: SplitProblem, factors: tuple[Atoms, ...]
) -> tuple[float, int]:
    """What an operation sends itself, and on a machine the time that it computes."""
    price, (wire, count) = resharder.price, (0.0, 0)
    if problem.sends is not None:
        wire, count = price.own(problem.sends(table, problem, factors), problem.sends_by)
    if problem.computes is not None:
        wire += price.busy(partial(problem.computes, table, problem, factors))
    return wire, count


def lay_out(
    table: AxisTable, rule: FactorRule, factors: tuple[Atoms, ...], carry: tuple[tuple[int, ...], Atoms, str]
) -> tuple[tuple[AxisLayout, ...], tuple[AxisLayout, ...]]:
    """The layouts of operands and of results that follow from axes per factor.

    ``carry`` is (operands that stay partial, over which atoms, with which reduction).
    """
    group, carried, reduction = carry
    operands = tuple(
        table.layout(dims_of(tensor, factors), carried if i in group else (), reduction)
        for i, tensor in enumerate(rule.operands)
    )
    partial = tuple(a for f in rule.of_kind(FactorKind.REDUCTION) for a in factors[f])
    kind = (rule.reduction if partial else reduction) or "sum"
    results = tuple(table.layout(dims_of(tensor, factors), (*carried, *partial), kind) for tensor in rule.results)
    return operands, results


def _operand_cost(
    table: AxisTable, resharder: Resharder, operand: SplitOperand, layout: AxisLayout
) -> tuple[float, int]:
    pieces = operand.pieces
    if pieces is not None and pieces.moves(*operand.layouts, layout):
        return min(resharder.cost(pieces.dims, operand.nbytes, form, layout) for form in operand.layouts)
    costs = [resharder.cost(operand.dims, operand.nbytes, form, layout) for form in operand.layouts]
    if operand.repetitions > 1:
        costs = [(wire / operand.repetitions, count) for wire, count in costs]
    if operand.shared and operand.layouts[0].unreduced and not layout.unreduced:
        costs.append(resharder.cost(operand.dims, operand.nbytes, operand.wanted, layout))
    return min(costs)


def volume(table: AxisTable, rule: FactorRule, factors: tuple[Atoms, ...]) -> float:
    """Local iterations, the measure of local work."""
    return math.prod(-(-f.size // table.extent(a)) for f, a in zip(rule.factors, factors, strict=True))
