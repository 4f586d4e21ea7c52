"""Start plans: each axis of the mesh splits one class of dimensions, and the other layouts are chosen around that. A
*pattern* gives each block of axes to a class, and to other classes that no operation uses together with it. Examples
are the batch, or heads, hidden width and vocabulary. Or one class has some or all blocks, and the others are not used.
Arguments and arithmetic follow the pattern. In a variant, a step's state (all large arguments if the state is not
known) is also spread over the blocks that its classes leave. People lay out programs by hand in this way, and such
plans differ where a cost model may be wrong. Another family fixes only the axes that split the state
(`find_state_seeds`), and leaves the rest to the model. An example are feature tables over one axis, while the batch
uses both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardc.hlo.ir.ir import Module
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.plan.seeds.dimension_classes import DimensionClass, DimensionClasses
from shardc.partitioner.plan.seeds.nearest_choice import nearest_choice
from shardc.partitioner.plan.seeds.propagate_arguments import layouts_of, propagate_arguments
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, Wire
from shardc.partitioner.strategy.solve.problem import ChosenOptions, Numbers
from shardc.partitioner.strategy.solve.solve import SolveLimits

__all__ = ["PlanSeed", "find_seeds", "find_state_seeds"]

#: What each block of axes is given to, first choice first.
_Pattern = tuple[tuple[DimensionClass, ...], ...]

#: Classes that a pattern may begin with: how many, and the least share of the arithmetic.
_CLASSES, _SHARE = 5, 0.1
#: So many patterns are priced, fewer of so many variables together.
_PATTERNS, _VARIABLES = 32, 20_000
#: The smallest state, this share of its bytes together, is not spread: each value would be moved by itself.
_SMALL = 0.01
#: Plans that cost more by this factor than the cheapest one that fits are left out.
_WORSE = 1.5
#: Models of memory err by so much.
_MORE_MEMORY = 1.2
#: Pricing is rough.
_ROUGH = SolveLimits(near=0, columns=1, nodes=1, rounds=15)


@dataclass(frozen=True, slots=True)
class PlanSeed:
    """``question`` allows only choices that follow a pattern; ``answer`` is the cheapest of them, without a memory
    limit."""

    question: LayoutQuestion
    answer: ChosenOptions

    def choices(self) -> Iterator[tuple[tuple[int, ...], Module | None]]:
        """The answer, and where arguments were the plan's to lay out what propagation makes of them: the choice that is
        nearest to it, with the propagated program."""
        assert self.answer.choice is not None
        yield self.answer.choice, None
        if self.question.graph.arguments:
            propagated = propagate_arguments(self.question.answer(self.answer.choice))
            layouts = layouts_of(self.question, propagated)
            found = nearest_choice(self.question, lambda w: layouts.get(w, w.preferred))
            if self.question.as_choice(math.inf).cost(found) <= _WORSE * self.answer.cost:
                yield found, propagated

    def within(self, limit: float) -> ChosenOptions:
        """The cheapest choice found within this number of modelled bytes."""
        return self.question.solve(limit, self.answer.choice, replace(_ROUGH, rounds=30))


def find_seeds(question: LayoutQuestion, room: float, *, spread: bool = False) -> list[PlanSeed]:
    """The best ones first: those within ``room`` modelled bytes, then by cost. Equal plans appear once. The state
    follows the pattern, or is ``spread``."""
    patterns = _Patterns(question)
    return _ranked(question, room, (patterns.pin(pattern, spread=spread) for pattern in patterns.all()))


def find_state_seeds(question: LayoutQuestion, room: float) -> list[PlanSeed]:
    """The cheapest plan for each set of blocks of axes, all of which and no others split the state; best ones first."""
    patterns = _Patterns(question)
    sets = (s for count in range(len(patterns.blocks), -1, -1) for s in itertools.combinations(patterns.blocks, count))
    return _ranked(question, room, map(patterns.keep, sets))


def _ranked(question: LayoutQuestion, room: float, pinned: Iterable[LayoutQuestion]) -> list[PlanSeed]:
    """The cheapest answers to the ``pinned`` forms of the ``question``, up to the allowed number; equal answers appear
    once."""
    seeds: dict[tuple[float, float], PlanSeed] = {}
    count = min(_PATTERNS, _VARIABLES // max(len(question.problem.costs), 1))
    for form in itertools.islice(pinned, count):
        answer = form.solve(math.inf, limits=_ROUGH)
        if answer.choice is not None:
            peak = question.memory.peak(answer.choice)
            seeds.setdefault((float(f"{answer.cost:.5g}"), float(f"{peak:.4g}")), PlanSeed(form, answer))
    order = sorted(seeds, key=lambda key: (key[1] > room * _MORE_MEMORY, key))
    return [seeds[key] for key in order if key[0] <= _WORSE * order[0][0]]


class _Patterns:
    """The patterns of a question, and the choices that they allow."""

    def __init__(self, question: LayoutQuestion) -> None:
        self.question = question
        self.blocks = question.node_options.blocks
        self.classes = DimensionClasses(question.graph.nodes)
        kept = {a for a, _ in question.interface.ties}
        self.state = _large([n.results[0] for k, n in question.graph.arguments.items() if k in kept or not kept])
        self.place = {n: (k, j) for k, c in enumerate(question.problem.clusters) for j, n in enumerate(c.members)}

    def all(self) -> Iterator[_Pattern]:
        """Those first that split most of the arithmetic most often; each with what products do not run over whole, as
        the weights' stacks of layers, and with it split."""
        classes, share = self.classes, self.classes.share
        firsts = [c for c in classes.ranked() if share[c] >= _SHARE][:_CLASSES]
        sets = {frozenset(found): found for found in (classes.complete(c, share.keys()) for c in reversed(firsts))}
        found = list(itertools.product(list(reversed(sets.values())), repeat=len(self.blocks)))
        found += [p for c in firsts for p in itertools.product([(c,), ()], repeat=len(self.blocks)) if any(p)]
        for pattern in sorted(found, key=lambda p: -sum(share[given[0]] for given in p if given)):
            whole = tuple(given and classes.complete(given[0], classes.contracted) for given in pattern)
            yield from dict.fromkeys((whole, pattern))

    def pin(self, pattern: _Pattern, *, spread: bool = False) -> LayoutQuestion:
        """The question in which arguments and arithmetic follow the pattern as far as possible, or the state is spread
        as well."""
        costs = list(self.question.problem.costs)
        for node in self.question.graph.arguments.values():
            wire = node.results[0]
            want = self.layout(wire, pattern, spread=spread and wire in self.state)
            self._allow(costs, node, [o.results[0] is want for o in self._options(node)])
        for node in self.classes.heavy:
            of = self.classes.of_factors(node)
            for block, given in zip(self.blocks, pattern, strict=True):
                mine = [f for f, c in enumerate(of) if c in given]
                if mine:
                    self._allow(costs, node, [_splits(o, mine, block) for o in self._options(node)])
        return self._with(costs)

    def keep(self, blocks: Sequence[tuple[int, ...]]) -> LayoutQuestion:
        """The question in which these ``blocks``, and no other axes, split each array of the state as far as
        possible."""
        costs, axes = list(self.question.problem.costs), frozenset(itertools.chain.from_iterable(blocks))
        for node in self.question.graph.arguments.values():
            if node.results[0] in self.state:
                self._allow(costs, node, [o.results[0].used == axes for o in self._options(node)])
        return self._with(costs)

    def _options(self, node: DecisionNode) -> Sequence[NodeOption]:
        k, j = self.place[node]
        return self.question.problem.members[k][j].options

    def _allow(self, costs: list[Numbers], node: DecisionNode, allowed: Sequence[bool]) -> None:
        """Leave ``node`` the options that are ``allowed``, if there are any."""
        k = self.place[node][0]
        left = np.where(allowed, costs[k], np.inf)
        if np.isfinite(left).any():
            costs[k] = left

    def _with(self, costs: list[Numbers]) -> LayoutQuestion:
        return replace(self.question, problem=replace(self.question.problem, costs=costs))

    def layout(self, wire: Wire, pattern: _Pattern, *, spread: bool) -> AxisLayout:
        """Each block splits the first dimension of its first class that is there and divides evenly; to ``spread``, the
        other blocks split the largest dimension that does."""
        of = self.classes.of(wire)
        dims: list[tuple[int, ...]] = [()] * len(wire.dims)
        left = [
            block
            for block, given in zip(self.blocks, pattern, strict=True)
            if not self.split(wire, dims, block, [d for c in given for d, x in enumerate(of) if x == c])
        ]
        by_size = sorted(range(len(dims)), key=lambda d: -wire.dims[d])
        for block in left if spread else ():
            self.split(wire, dims, block, by_size)
        return self.question.context.table.layout(dims)

    def split(self, wire: Wire, dims: list[tuple[int, ...]], block: tuple[int, ...], places: Sequence[int]) -> bool:
        """Give the block to the first dimension in ``places`` that divides evenly, if one does."""
        extent = self.question.context.table.extent
        for d in places:
            if wire.dims[d] > 1 and wire.dims[d] % extent(dims[d] + block) == 0:
                dims[d] += block
                return True
        return False


def _splits(option: NodeOption, mine: Sequence[int], block: tuple[int, ...]) -> bool:
    factors = () if option.choice is None else option.choice.factors
    return any(set(block) <= set(factors[f]) for f in mine if f < len(factors))


def _large(wires: Sequence[Wire]) -> frozenset[Wire]:
    """All arguments except the smallest, which together hold few of the bytes."""
    order = sorted(wires, key=lambda w: w.nbytes * math.prod(w.dims))
    sizes = list(itertools.accumulate(w.nbytes * math.prod(w.dims) for w in order))
    return frozenset(w for w, upto in zip(order, sizes, strict=True) if upto > _SMALL * sizes[-1])
