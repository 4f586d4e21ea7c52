"""From layouts that were chosen for all values to the plan that a person writes down."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from shardc.analysis.auto.fewest_annotations import AnnotationGroup, fewest_annotations
from shardc.analysis.auto.written_plan import PlanSpec, WrittenPlan
from shardc.analysis.explain.candidates import AnnotatableNames, spec_text
from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Instruction, Metadata, Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text
from shardc.partitioner.program import PropagatedProgram
from shardc.sharding.notations.names import pattern_of
from shardc.sharding.notations.source_names import is_derived, parse_source_name, source_name, source_place
from shardc.sharding.propagation.export import PropagationOutcome

__all__ = ["own_plan", "write_plan"]

#: Values that cost nothing to have in any layout.
_MADE_ANYWHERE = frozenset(("constant", "iota", "broadcast", "partition-id", "rng-get-and-update-state"))
#: What JAX calls the functions by which loops take slices of arrays, and put slices together.
_SLICED = re.compile(r"dynamic_(update_)?index_in_dim")
#: The share of all bytes that may lie otherwise than planned.
_TOLERANCE = 0.01


def write_plan(
    propagated: PropagatedProgram, wanted: Sequence[Sharding | None], released: Collection[str] = ()
) -> WrittenPlan:
    """The fewest specs for the program of ``propagated`` that make propagation give its values the layouts ``wanted``,
    one per value of its propagation graph; None: in any layout.

    Arguments and results with ``released`` names get a spec each: they had annotations. Raises `ValueError` for a
    program that was partitioned already.
    """
    writer = _SpecWriter.of(propagated)
    outcome = writer.outcome
    weights = [0.0 if s is None else w for s, w in zip(wanted, _weights(outcome), strict=True)]
    layouts = [s or found for s, found in zip(wanted, outcome.shardings, strict=True)]
    named = {v: n for v, n in writer.named.items() if _has_words(layouts[v]) and writer.is_written(v)}
    can = {v: n for v, n in named.items() if wanted[v] is not None}
    needed = fewest_annotations(outcome, layouts, weights, can, _TOLERANCE)
    specs: list[PlanSpec] = []
    for group, follow in zip(needed.groups, needed.follow, strict=True):
        nbytes = sum(weights[v] for v in follow)
        specs.append(replace(writer.spec(group, _reason(group, follow, nbytes)), follow_bytes=nbytes))
    said = {v for g in needed.groups for v in g.values}
    instead = {v: layouts[v] for v, n in named.items() if n in released and v not in said and writer.kind(v) != "value"}
    specs += [replace(s, replaces=True) for s in writer.grouped(instead, "in place of its annotation")]
    return replace(own_plan(propagated), specs=specs)


def own_plan(propagated: PropagatedProgram) -> WrittenPlan:
    """What the program says of its arguments and results by itself."""
    writer, module = _SpecWriter.of(propagated), propagated.module
    assert module.mesh is not None
    graph = writer.outcome.graph
    own = {
        v: replace(graph.initial[v], replicated=())
        for v in writer.named
        if graph.annotated[v] and graph.dims[v] and writer.kind(v) != "value" and _has_words(graph.initial[v])
    }
    given = writer.grouped(own, "as given")
    return WrittenPlan(module.mesh, (), propagated.program.arg_names, given, whole=not any(graph.annotated))


def _has_words(sharding: Sharding) -> bool:
    """Whether a `PartitionSpec` can express the sharding. It names whole axes."""
    return all(a.is_full for d in sharding.dims for a in d.axes)


def _weights(outcome: PropagationOutcome) -> list[float]:
    """Bytes of each value times how often it is made; nothing for what can be made in any layout."""
    counts = count_executions(outcome.prepared).count
    owner = {i: c for c in outcome.prepared.computations for i in c}

    def weight(instruction: Instruction, leaf: int) -> float:
        if instruction.opcode in _MADE_ANYWHERE or not list(instruction.shape.leaves())[leaf].dims:
            return 0.0
        return float(list(instruction.shape.leaves())[leaf].nbytes * counts.get(owner[instruction], 1))

    return [weight(i, leaf) for i, leaf in outcome.graph.origin]


@dataclass(frozen=True, slots=True)
class _SpecWriter:
    """Writes annotations by the names that values have."""

    outcome: PropagationOutcome
    module: Module
    names: AnnotatableNames
    named: Mapping[int, str]
    holders: Mapping[Instruction, str]
    inner: Set[Instruction]

    @staticmethod
    def of(propagated: PropagatedProgram) -> _SpecWriter:
        outcome, history = propagated.outcome, propagated.provenance
        if outcome is None or history is None:
            raise ValueError("a program that is partitioned already has no plan to write")
        module = propagated.program.module
        names = AnnotatableNames(history, module)
        named = {v: n for v in range(len(outcome.graph.origin)) if (n := names.of(v)) is not None}
        holders = {i: c.name for c in outcome.prepared.computations for i in c}
        return _SpecWriter(outcome, module, names, named, holders, _find_inner(outcome.prepared))

    def spec(self, group: AnnotationGroup, reason: str) -> PlanSpec:
        text = spec_text(group.sharding.dims)
        spelled = dict.fromkeys((self.named[v], text) for v in group.values)
        short = tuple(n for n, _ in self.names.short(list(spelled)))
        kind = "argument" if group.is_argument else self.kind(group.values[0])
        i = self.outcome.graph.origin[group.values[0]][0]
        if kind != "value":
            return PlanSpec(kind, short, group.sharding, reason=reason)
        by_source = self.by_source(i, spelled)
        names = (by_source,) if by_source else short
        return PlanSpec(kind, names, group.sharding, source_place(i), f"{i.shape.plain} {i.opcode}", reason)

    def by_source(self, i: Instruction, names: Iterable[tuple[str, str]]) -> str:
        """The name by the source, where it means the values called so, and no others."""
        source = parse_source_name(name := source_name(i))
        if source is None or {i.name for i in source.among(self.module.instructions())} != {n for n, _ in names}:
            return ""
        return name

    def is_written(self, value: int) -> bool:
        """Whether the author of the program wrote the value. Derivation makes operations of its own, loops take and
        join slices, and calls compute values that nothing outside of them reads."""
        i = self.outcome.graph.origin[value][0]
        if i in self.inner:
            return False
        op_name = "" if i.metadata is None else i.metadata.op_name
        return not (
            is_derived(i) or _SLICED.match(self.holders[i]) or _SLICED.match(op_name.rpartition("/body/jit(")[2])
        )

    def kind(self, value: int) -> str:
        origin, prepared = self.outcome.graph.origin[value][0], self.outcome.prepared
        if origin in prepared.parameters:
            return "argument"
        return "result" if origin is prepared.entry.root else "value"

    def grouped(self, layouts: Mapping[int, Sharding], reason: str) -> list[PlanSpec]:
        """Specs of arguments and results, one for all that are called alike but for numbers, and lie alike."""
        found: dict[tuple[str, Sharding], list[int]] = {}
        for v, s in layouts.items():
            found.setdefault((pattern_of(self.named[v]), s), []).append(v)
        return [
            self.spec(AnnotationGroup(tuple(values), s, self.kind(values[0]) == "argument"), reason)
            for (_, s), values in found.items()
        ]


def _find_inner(module: Module) -> Set[Instruction]:
    """What is on the way to what its expression makes: all that reads it, but for gradients, is of the same one."""
    outside: dict[Instruction, bool] = {}
    for user in module.instructions():
        for o in user.operands if not is_derived(user) else ():
            outside[o] = outside.get(o, False) or source_place(user) != source_place(o)
    return {i for i, seen in outside.items() if not seen and i.metadata is not None and _has_columns(i.metadata)}


def _has_columns(m: Metadata) -> bool:
    return bool(m.source_file) and m.source_end_column > 0


def _reason(group: AnnotationGroup, follow: Collection[int], nbytes: float) -> str:
    others = len(set(follow).difference(group.values))
    told = f"{others} other value{'' if others == 1 else 's'} follow{'s' if others == 1 else ''} from it; "
    return f"{told if others else ''}without it {bytes_text(nbytes)} would have other layouts"
