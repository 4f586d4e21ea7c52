"""The fewest annotations from which propagation finds given layouts.

A greedy cover, then a reduction. Arguments come first, then operations, in program order: of those that lie otherwise
than wanted some are tried, and that annotation stays by which most bytes come right. Little is left at last that lies
otherwise (`tolerance`), or nothing that an annotation makes right. Then every annotation is taken away again without
which the outcome is no worse. What one place of the source makes in equal layers is annotated together: it is one line
to write. What derivation makes of a line (`transpose(...)`) is not: nobody wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import Sharding
from shardc.sharding.notations.names import pattern_of
from shardc.sharding.notations.source_names import is_derived
from shardc.sharding.propagation.engine import Engine
from shardc.sharding.propagation.export import PropagationOutcome
from shardc.sharding.propagation.graph import PropagationGraph

__all__ = ["AnnotationGroup", "NeededAnnotations", "fewest_annotations"]

#: Groups that are tried in a round: the largest arguments, operations whose results are the first to differ.
_TRIES = 6
#: The same for two groups at once, which are tried where no single one makes anything better.
_PAIRS = 3


@dataclass(frozen=True, slots=True)
class AnnotationGroup:
    """Values of the propagation graph that are annotated together, with one ``sharding``.

    They are arguments whose names differ in numbers alone, or results of one line of the source.
    """

    values: tuple[int, ...]
    sharding: Sharding
    is_argument: bool


#: Groups to annotate next, and what lies otherwise than wanted then.
_Step = tuple[list[AnnotationGroup], frozenset[int]]


@dataclass(frozen=True, slots=True)
class NeededAnnotations:
    """``groups`` are the annotations, arguments first, and those by which most comes right; ``follow`` has for each
    what lies otherwise without it.

    ``different`` are the values that lie otherwise than wanted all the same, since propagation does not leave them so.
    """

    groups: tuple[AnnotationGroup, ...]
    follow: tuple[frozenset[int], ...]
    different: frozenset[int]


def fewest_annotations(
    outcome: PropagationOutcome,
    wanted: Sequence[Sharding],
    weights: Sequence[float],
    names: Mapping[int, str],
    tolerance: float = 0.0,
) -> NeededAnnotations:
    """Annotations that make propagation of ``outcome``'s program give each value v the layout ``wanted[v]``.

    What the program says already stays. ``weights[v]`` says how much a value counts, such as its bytes times its
    executions; 0 for one whose layout is all the same. ``names`` has those values that can be annotated. A share of
    the weights, the ``tolerance``, may lie otherwise at last. The result is small but need not be the smallest: that
    problem is as hard as covering a set.
    """
    return _Cover(outcome.graph, outcome, wanted, weights, names, tolerance * math.fsum(weights)).run()


@dataclass(slots=True)
class _Cover:
    graph: PropagationGraph
    outcome: PropagationOutcome
    wanted: Sequence[Sharding]
    weights: Sequence[float]
    names: Mapping[int, str]
    allowed: float
    taken: list[AnnotationGroup] = field(default_factory=list)
    last: Engine | None = None

    def run(self) -> NeededAnnotations:
        groups = self.groups()
        different = self.different(())
        for arguments in (True, False, True):
            different = self.take([g for g in groups if g.is_argument is arguments], different)
        most = max(self.allowed, self.weight(different))
        self.reduce(most)
        self.annotate_arguments(most)
        different = self.different(self.taken)
        follow = tuple(self.without(g) - different for g in self.taken)
        return NeededAnnotations(tuple(self.taken), follow, different)

    def without(self, group: AnnotationGroup) -> frozenset[int]:
        """What differs without the annotation of a group."""
        return self.different([g for g in self.taken if g is not group])

    def take(self, groups: Sequence[AnnotationGroup], different: frozenset[int]) -> frozenset[int]:
        """Annotate of ``groups`` what makes most right, one after the other; returns what differs then."""
        while self.weight(different) > self.allowed:
            found = self.best(groups, different) or self.best_pair(groups, different)
            if found is None:
                break
            taken, different = found
            self.taken += taken
        return different

    def groups(self) -> list[AnnotationGroup]:
        """What can be annotated: arguments, the heaviest first, then all else in program order."""
        found: dict[object, list[int]] = {}
        for v in self.names:
            if not self.graph.annotated[v] and self.graph.dims[v]:
                found.setdefault(self.key(v), []).append(v)
        made: list[AnnotationGroup] = []
        for values in found.values():
            alike: dict[object, list[int]] = {}
            for v in values:
                alike.setdefault((self.graph.dims[v], _axes(self.wanted[v])), []).append(v)
            border = self.is_border(values[0])
            if len(alike) == 1 or border:
                argument = self.is_argument(values[0])
                made += [AnnotationGroup(tuple(g), _closed(self.wanted[g[0]]), argument) for g in alike.values()]
        return sorted(made, key=self.place)

    def place(self, group: AnnotationGroup) -> tuple[float, int, tuple[int, ...]]:
        """Where it is tried: heavy arguments that many operations read first."""
        if not group.is_argument:
            return 1.0, 0, group.values
        return -self.weight(frozenset(group.values)), -self.graph.uses[group.values[0]], group.values

    def key(self, value: int) -> object:
        """Equal for what one line says: arguments and results by their names but for numbers, others by place in the
        source and operation."""
        instruction = self.graph.origin[value][0]
        if self.is_border(value):
            return pattern_of(self.names[value])
        metadata = instruction.metadata
        if metadata is None or not metadata.places:
            return self.outcome.copies.get(instruction, instruction)
        return (metadata.places[0], instruction.opcode, is_derived(instruction))

    def is_border(self, value: int) -> bool:
        """Whether the value is an argument or a result."""
        instruction = self.graph.origin[value][0]
        return instruction in self.parameters or (
            instruction is self.outcome.prepared.entry.root and instruction.shape.is_tuple
        )

    def is_argument(self, value: int) -> bool:
        return self.graph.origin[value][0] in self.parameters

    @property
    def parameters(self) -> frozenset[Instruction]:
        return frozenset(self.outcome.prepared.parameters)

    def best(self, groups: Sequence[AnnotationGroup], different: frozenset[int]) -> _Step | None:
        """The next group to annotate, and what differs then; None where no group makes anything better."""
        return self.least(([group] for group in self.tries(groups, different, _TRIES)), different)

    def best_pair(self, groups: Sequence[AnnotationGroup], different: frozenset[int]) -> _Step | None:
        """The next two groups, of which the second keeps the first from spreading too far."""

        def pairs() -> Iterator[list[AnnotationGroup]]:
            for first in self.tries(groups, different, _PAIRS):
                spread = self.different([*self.taken, first])
                yield from ([first, second] for second in self.tries(self.groups(), spread, _PAIRS) if second != first)

        return self.least(pairs(), different)

    def least(self, steps: Iterable[list[AnnotationGroup]], different: frozenset[int]) -> _Step | None:
        """That step which leaves least that is ``different``, less than now."""
        best, least = None, self.weight(different)
        for step in steps:
            left = self.different([*self.taken, *step])
            weight = self.weight(left)
            if weight < least:
                best, least = (step, left), weight
        return best

    def tries(
        self, groups: Sequence[AnnotationGroup], different: frozenset[int], most: int
    ) -> Sequence[AnnotationGroup]:
        taken = set(self.taken)
        return [g for g in groups if g not in taken and not different.isdisjoint(g.values)][:most]

    def reduce(self, weight: float) -> None:
        """Take away annotations, those first that make least right, without which no more differs than ``weight``."""
        order = {g: self.weight(self.without(g)) for g in reversed(self.taken)}
        for group in sorted(order, key=order.__getitem__):
            if self.weight(self.without(group)) <= weight:
                self.taken.remove(group)

    def annotate_arguments(self, weight: float) -> None:
        """Annotate arguments in place of operations, as they lie by these, where no more differs than ``weight``."""
        for group in [g for g in self.taken if not g.is_argument]:
            others = [g for g in self.taken if g is not group]
            found, without = self.propagated(self.taken), self.propagated(others)
            for argument in self.free_arguments:
                lies = found[argument.values[0]]
                if _axes(lies) == _axes(without[argument.values[0]]) or not _same_layouts(found, argument.values):
                    continue
                instead = replace(argument, sharding=_closed(lies))
                if self.weight(self.different([*others, instead])) <= weight:
                    self.taken[self.taken.index(group)] = instead
                    break

    @property
    def free_arguments(self) -> list[AnnotationGroup]:
        """Arguments that are not annotated."""
        taken = {v for g in self.taken for v in g.values}
        return [g for g in self.groups() if g.is_argument and taken.isdisjoint(g.values)]

    def different(self, annotated: Sequence[AnnotationGroup]) -> frozenset[int]:
        """The values that propagation gives another layout than wanted, with so many annotations."""
        pairs = enumerate(zip(self.propagated(annotated), self.wanted, strict=True))
        return frozenset(v for v, (s, w) in pairs if self.weights[v] and _axes(s) != _axes(w))

    def propagated(self, annotated: Sequence[AnnotationGroup]) -> Sequence[Sharding]:
        """The layouts that propagation finds from so many annotations."""
        initial, given = list(self.graph.initial), list(self.graph.annotated)
        for group in annotated:
            for v in group.values:
                initial[v], given[v] = group.sharding, True
        engine = Engine(replace(self.graph, initial=initial, annotated=given), self.outcome.options, self.last)
        engine.run()
        self.last = engine
        return engine.shardings

    def weight(self, values: frozenset[int]) -> float:
        return math.fsum(self.weights[v] for v in values)


def _axes(sharding: Sharding) -> object:
    """Where a value lies: open and closed dimensions, and axes kept whole, are all the same."""
    return tuple(d.axes for d in sharding.dims), frozenset(sharding.unreduced)


def _same_layouts(shardings: Sequence[Sharding], values: Sequence[int]) -> bool:
    return len({_axes(shardings[v]) for v in values}) == 1


def _closed(sharding: Sharding) -> Sharding:
    return replace(sharding, dims=tuple(replace(d, closed=True, priority=0) for d in sharding.dims), replicated=())
