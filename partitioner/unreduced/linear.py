"""How partial values spread: which values follow linearly from others, through loops and branches too.

A sum of partial values may be reduced before or behind anything linear. These are questions about the global program,
answered with the rows' own groups of operands (`Local.linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.strategy.rule import PartitionRow
from shardc.partitioner.strategy.values import REDUCIBLE_LATER, PartialAxes
from shardc.sharding.rules.factor_rule import FactorKind

__all__ = ["PASSING", "LinearGroups", "Spread", "merge_partials"]

#: Families of operations that compute as much on partial values as on whole ones, and may pass them on in plans.
PASSING = frozenset(("elementwise", "shape", "indexing"))
#: Operations outside the tables of local ones that pass partial values on.
_FIRST = ((0,),)


def merge_partials(found: Iterable[PartialAxes | None]) -> PartialAxes | None:
    """Partial over the axes of all that are reduced as the first one is."""
    first: PartialAxes | None = None
    for p in found:
        if p is None or p == first:
            continue
        if first is None:
            first = p
        elif p.reduction == first.reduction:
            first = PartialAxes(tuple(sorted({*first.atoms, *p.atoms})), first.reduction)
    return first


@dataclass(slots=True)
class LinearGroups:
    """What operations are by themselves, whatever is known of values: kept while a program is partitioned.

    ``groups`` of operands by operation and reduction, and how operations that reduce are partial (`Spread`).
    """

    groups: dict[tuple[Instruction, str], tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    reducing: dict[Instruction, PartialAxes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spread:
    """Answers about one state of a partitioning, each computation looked at once.

    ``known`` are the values that were partial when they were made; ``layouts`` gives the propagated layouts of an
    instruction, by which others would be partial if they were made where their operands lie. ``families`` are those of
    the operations with strategies that pass partial values on (None: all).
    """

    rules: Mapping[str, PartitionRow]
    known: Mapping[Instruction, PartialAxes]
    layouts: Callable[[Instruction], Sequence[AxisLayout]]
    linear: LinearGroups
    families: frozenset[str] | None = None
    _loops: dict[Instruction, dict[int, PartialAxes]] = field(default_factory=dict)
    _branches: dict[Computation, dict[Instruction, PartialAxes]] = field(default_factory=dict)
    _through: dict[tuple[Instruction, frozenset[int], str], frozenset[int] | None] = field(default_factory=dict)

    @classmethod
    def of_any_layouts(cls, rules: Mapping[str, PartitionRow]) -> Spread:
        """Answers about what could be partial in some layouts, as if every dimension were split over one atom. Only
        operations that compute as much on partial values as on whole ones pass these on."""

        def split(op: Instruction) -> Sequence[AxisLayout]:
            return [AxisLayout(((0,),) * s.rank, (), "sum") for s in op.shape.leaves()]

        return cls(rules, {}, split, LinearGroups(), PASSING)

    def groups(self, op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
        """The groups of operands in which ``op`` is jointly linear."""
        found = self.linear.groups.get((op, reduction))
        if found is None:
            found = self.linear.groups[op, reduction] = self._groups(op, reduction)
        return found

    def _groups(self, op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
        strategies = self.rules[op.opcode].strategies
        if strategies and self.families is not None and OPS[op.opcode].family not in self.families:
            return ()
        if strategies:
            return tuple(dict.fromkeys(g for strategy in strategies for g in strategy.linear(op, reduction)))
        if op.opcode == "concatenate":
            return (tuple(range(len(op.operands))),)
        passes = op.opcode in ("broadcast", "copy") or op.attrs.get("custom_call_target") == "Sharding"
        return _FIRST if passes and op.shape.is_array else ()

    def sources(
        self, computation: Computation, given: Mapping[Instruction, PartialAxes]
    ) -> dict[Instruction, PartialAxes]:
        """Every value that is partial itself or follows linearly from one that is; ``given`` are such values."""
        found = dict(given)
        for op in computation:
            partial = self.known.get(op) or self._passed(op, found) or self._reducing(op)
            if partial is not None and op not in found:
                found[op] = partial
        return found

    def _passed(self, op: Instruction, found: Mapping[Instruction, PartialAxes]) -> PartialAxes | None:
        if op.opcode == "get-tuple-element":
            return self.of_element(op.operands[0], op.attrs["index"])
        if op.opcode == "conditional" and op.shape.is_array:
            return self.of_element(op, None)
        near = [found[o] for o in op.operands if o in found]
        for reduction in dict.fromkeys(p.reduction for p in near):
            members = [op.operands[n] for g in self.groups(op, reduction) for n in g]
            partial = merge_partials(p for o in members if (p := found.get(o)) is not None and p.reduction == reduction)
            if partial is not None:
                return partial
        return None

    def _reducing(self, op: Instruction) -> PartialAxes | None:
        """How ``op`` gives partial values where its operands are split along what it reduces."""
        known = self.linear.reducing
        if op not in known:
            known[op] = self._reduced(op)
        return known[op]

    def _reduced(self, op: Instruction) -> PartialAxes | None:
        strategies = self.rules[op.opcode].strategies
        rule = strategies[0].rule(op) if strategies and op.shape.is_array else None
        if rule is None or rule.reduction not in REDUCIBLE_LATER:
            return None
        reduced = strategies[0].usable(op, rule).intersection(rule.of_kind(FactorKind.REDUCTION))
        atoms: set[int] = set()
        for tensor, dim in (place for f in sorted(reduced) for place in rule.places(f)):
            if tensor < len(op.operands) and op.operands[tensor].shape.is_array and len(rule.tensors[tensor][dim]) == 1:
                atoms.update(self.layouts(op.operands[tensor])[0].dims[dim])
        return PartialAxes(tuple(sorted(atoms)), rule.reduction) if atoms else None

    def of_element(self, op: Instruction, index: int | None) -> PartialAxes | None:
        """What element ``index`` (None: the array) of a loop's or conditional's result could be left partial over."""
        if op.opcode == "while":
            return None if index is None else self.of_loop(op).get(index)
        if op.opcode != "conditional":
            return None
        found = []
        for c in branches_of(op.attrs):
            ends = c.root if index is None else c.root.operands[index] if c.root.opcode == "tuple" else None
            if ends is not None and c not in self._branches:
                self._branches[c] = self.sources(c, {})
            found.append(self._branches[c].get(ends) if ends is not None else None)
        return merge_partials(found)

    def of_loop(self, op: Instruction) -> dict[int, PartialAxes]:
        """The elements of a loop's result that could be left partial, because of other elements too."""
        known = self._loops.get(op)
        if known is None:
            known = self._loops[op] = self._of_loop(op)
        return known

    def _of_loop(self, op: Instruction) -> dict[int, PartialAxes]:
        body: Computation = op.attrs["body"]
        out: dict[int, PartialAxes] = {}
        while body.root.opcode == "tuple":
            given = {i: out[k] for i, k in _elements(body).items() if k in out}
            found = self.sources(body, given)
            after = {
                k: p for k, o in enumerate(body.root.operands) if (p := merge_partials((out.get(k), found.get(o))))
            }
            if after == out:
                break
            out = after
        return out

    def reached(self, computation: Computation, starts: Iterable[Instruction], reduction: str) -> frozenset[int] | None:
        """The elements of the root (0: the array) that follow linearly from ``starts``; None if anything else does."""
        inside = set(starts)
        elements: dict[Instruction, frozenset[int]] = {}
        for op in computation:
            slots = [n for n, o in enumerate(op.operands) if o in inside or o in elements]
            if not slots or op in inside:
                continue
            if op.opcode == "tuple" and not any(op.operands[n] in elements for n in slots):
                elements[op] = frozenset(slots)
            elif op.opcode == "get-tuple-element" and op.operands[0] in elements:
                if op.attrs["index"] in elements[op.operands[0]]:
                    inside.add(op)
            elif op.opcode == "while":
                state = elements.get(op.operands[0])
                through = None if state is None else self.through_loop(op, state, reduction)
                if through is None:
                    return None
                elements[op] = through
            elif op.opcode == "conditional":
                through = None if 0 in slots else self._through_branches(op, slots, inside, elements, reduction)
                if through is None:
                    return None
                if op.shape.is_array:
                    inside.add(op)
                else:
                    elements[op] = through
            elif any(op.operands[n] in elements for n in slots) or not op.shape.is_array:
                return None
            elif any(set(slots) <= set(g) for g in self.groups(op, reduction)):
                inside.add(op)
            else:
                return None
        if computation.root in elements:
            return elements[computation.root]
        return frozenset((0,)) if computation.root in inside else frozenset()

    def through_loop(self, op: Instruction, given: frozenset[int], reduction: str) -> frozenset[int] | None:
        """The elements of a loop's result that follow linearly from elements of its initial state."""
        key = (op, given, reduction)
        if key not in self._through:
            self._through[key] = self._through_loop(*key)
        return self._through[key]

    def _through_loop(self, op: Instruction, given: frozenset[int], reduction: str) -> frozenset[int] | None:
        body, condition = op.attrs["body"], op.attrs["condition"]
        while True:
            if any(e in given for e in _read(condition)):
                return None
            starts = [i for i, e in _elements(body).items() if e in given]
            after = self.reached(body, starts, reduction) if _is_flat(body) else None
            if after is None or after <= given:
                return None if after is None else given
            given = given | after

    def _through_branches(
        self,
        op: Instruction,
        slots: Sequence[int],
        inside: set[Instruction],
        elements: Mapping[Instruction, frozenset[int]],
        reduction: str,
    ) -> frozenset[int] | None:
        out: set[int] = set()
        for n in slots:
            operand, branch = op.operands[n], branches_of(op.attrs)[n - 1]
            after = self.through_branch(branch, None if operand in inside else elements[operand], reduction)
            if after is None:
                return None
            out |= after
        return frozenset(out)

    def through_branch(
        self, branch: Computation, given: frozenset[int] | None, reduction: str
    ) -> frozenset[int] | None:
        """The elements of a branch's result that follow linearly from its operand (None), or elements of that."""
        if given is None:
            return self.reached(branch, branch.parameters, reduction)
        if any(r.opcode != "get-tuple-element" for r in _readers(branch)):
            return None
        return self.reached(branch, [i for i, e in _elements(branch).items() if e in given], reduction)


def _readers(computation: Computation) -> list[Instruction]:
    (parameter,) = computation.parameters
    found = [i for i in computation if parameter in i.operands]
    return [*found, parameter] if parameter is computation.root else found


def _elements(computation: Computation) -> dict[Instruction, int]:
    """The elements of the computation's only parameter, as they are taken out of it."""
    (parameter,) = computation.parameters
    return {
        i: int(i.attrs["index"]) for i in computation if i.opcode == "get-tuple-element" and i.operands[0] is parameter
    }


def _read(computation: Computation) -> set[int]:
    """The elements that a computation reads; all of them if it takes the parameter as a whole."""
    if any(r.opcode != "get-tuple-element" for r in _readers(computation)):
        return set(range(len(computation.parameters[0].shape.elements)))
    return set(_elements(computation).values())


def _is_flat(body: Computation) -> bool:
    """Whether a loop's state is a tuple of arrays that the body takes apart and puts together again."""
    shape = body.parameters[0].shape
    return (
        shape.is_tuple
        and body.root.opcode == "tuple"
        and all(s.is_array for s in shape.elements)
        and all(r.opcode == "get-tuple-element" for r in _readers(body))
    )
