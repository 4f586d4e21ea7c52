"""From layouts that were chosen for all values to the plan that a person writes down."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.analysis.auto.fewest_annotations import DERIVED, AnnotationGroup, NeededAnnotations, fewest_annotations
from shardc.analysis.auto.written_plan import PlanSpec, WrittenPlan
from shardc.analysis.explain.candidates import AnnotatableNames, spec_text
from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text
from shardc.partitioner.program import PropagatedProgram
from shardc.sharding.propagation.export import PropagationOutcome

__all__ = ["write_plan"]

#: Values that cost nothing to have in any layout.
_MADE_ANYWHERE = frozenset(("constant", "iota", "broadcast", "partition-id", "rng-get-and-update-state"))
#: The share of all bytes that may lie otherwise than planned.
_TOLERANCE = 0.01


def write_plan(propagated: PropagatedProgram, wanted: Sequence[Sharding | None]) -> WrittenPlan:
    """The fewest specs for the program of ``propagated`` that make propagation give its values the layouts ``wanted``,
    one per value of its propagation graph; None: in any layout.

    Raises `ValueError` for a program that was partitioned already.
    """
    outcome, history = propagated.outcome, propagated.provenance
    if outcome is None or history is None:
        raise ValueError("a program that is partitioned already has no plan to write")
    names = AnnotatableNames(history, propagated.program.module)
    named = {v: n for v in range(len(outcome.graph.origin)) if (n := names.of(v)) is not None}
    weights = [0.0 if s is None else w for s, w in zip(wanted, _weights(outcome), strict=True)]
    layouts = [s or found for s, found in zip(wanted, outcome.shardings, strict=True)]
    named = {
        v: n
        for v, n in named.items()
        if wanted[v] is not None and _has_words(layouts[v]) and not _is_derived(outcome, v)
    }
    needed = fewest_annotations(outcome, layouts, weights, named, _TOLERANCE)
    specs = [_spec(outcome, names, named, group) for group in needed.groups]
    reasons = _reasons(needed, weights)
    module = propagated.program.module
    made = [PlanSpec(*spec, reason=reason) for spec, reason in zip(specs, reasons, strict=True)]
    assert module.mesh is not None
    return WrittenPlan(module.mesh, made, propagated.program.arg_names)


def _has_words(sharding: Sharding) -> bool:
    """Can a `PartitionSpec` say it? It names whole axes."""
    return all(a.is_full for d in sharding.dims for a in d.axes)


def _is_derived(outcome: PropagationOutcome, value: int) -> bool:
    metadata = outcome.graph.origin[value][0].metadata
    return metadata is not None and DERIVED in metadata.op_name


def _weights(outcome: PropagationOutcome) -> list[float]:
    """Bytes of each value times how often it is made; nothing for what can be made in any layout."""
    counts = count_executions(outcome.prepared).count
    owner = {i: c for c in outcome.prepared.computations for i in c}

    def weight(instruction: Instruction, leaf: int) -> float:
        if instruction.opcode in _MADE_ANYWHERE or not list(instruction.shape.leaves())[leaf].dims:
            return 0.0
        return float(list(instruction.shape.leaves())[leaf].nbytes * counts.get(owner[instruction], 1))

    return [weight(i, leaf) for i, leaf in outcome.graph.origin]


def _spec(
    outcome: PropagationOutcome, names: AnnotatableNames, named: dict[int, str], group: AnnotationGroup
) -> tuple[str, tuple[str, ...], Sharding, str]:
    text = spec_text(group.sharding.dims)
    short = tuple(n for n, _ in names.short([(named[v], text) for v in group.values]))
    origin = outcome.graph.origin[group.values[0]][0]
    kind = "argument" if group.is_argument else "result" if origin is outcome.prepared.entry.root else "value"
    return kind, short, group.sharding, str(origin.source) if kind == "value" and origin.source else ""


def _reasons(needed: NeededAnnotations, weights: Sequence[float]) -> list[str]:
    out = []
    for group, follow in zip(needed.groups, needed.follow, strict=True):
        others = follow.difference(group.values)
        total = bytes_text(sum(weights[v] for v in follow))
        out.append(f"{len(others)} other values follow from it; without it {total} would lie otherwise")
    return out
