"""Checks a partitioned program against a budget; what exceeds it comes with source line, reason and remedy.

Collectives are those of the explanation, so their reasons are. Remedies are looked for where something is wrong only.
The one that is told is that which leaves least of what exceeds the budget, and what it leaves is told with it. Bytes
sent, or a time, that exceed the baseline name the collective that grew most.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from shardc.analysis.budget.baseline import Baseline, baseline_of, read_baseline, write_baseline
from shardc.analysis.budget.budget import TOTALS, Forbidden, ProgramBudget
from shardc.analysis.budget.violation import Checked, Violation
from shardc.analysis.explain.collect import CollectiveGroup, collect_collectives
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.explain import explain
from shardc.analysis.explain.explanation import CollectiveReason, Explanation, ProgramTotals
from shardc.analysis.explain.remedies import SearchLimits
from shardc.costs.machines.machine import load_machine
from shardc.costs.network.mapping import place
from shardc.hlo.errors import InputError
from shardc.hlo.units import apart_text, bytes_text, count_text, flops_text, seconds_text, sizes_text
from shardc.partitioner.program import PartitionedProgram

__all__ = ["check", "record"]

#: The totals that a collective may be the reason of.
_SENT = ("wire_bytes", "seconds")
#: How totals that are no bytes are written, and in which unit in full.
_FORMS = {"seconds": (seconds_text, "s"), "flops": (flops_text, "flop")}
_UPDATE = "record one with --update (shardc check) or --update-budgets (pytest)"


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is exceeded, with the ``number`` of the collective at fault, if any. ``left`` says how much of it another
    program has, and in words; (0, "") where that is within the budget."""

    violation: Violation
    number: int | None
    left: Callable[[PartitionedProgram, ProgramTotals], tuple[float, str]]


def check(
    partitioned: PartitionedProgram, budget: ProgramBudget, *, remedies: int = 3, tries: int = 12, seconds: float = 30.0
) -> Checked:
    """What of ``budget`` the program exceeds.

    Remedies are looked for with the first ``remedies`` collectives at fault, at most ``tries`` annotations for each,
    and no new one after ``seconds``. Raises `InputError` for unknown machines and links, and where the baseline is
    missing.
    """
    machine = budget.placed_machine
    _check_rules(partitioned, budget)
    comparer = ProgramComparer(partitioned, machine)
    told = explain(partitioned, machine, comparer=comparer)
    known = None if budget.baseline is None else read_baseline(budget.baseline, _UPDATE)
    if known is not None:
        _warn_of_another("mesh", budget, sizes_text(known.mesh), sizes_text(told.mesh))
        _warn_of_another("machine", budget, known.machine, told.machine)
    faults = [*_forbidden(comparer, told, budget), *_exceeded(told, budget, known)]
    numbers = [f.number for f in faults if f.number is not None][:remedies]
    if numbers:  # collectives come in the order in which remedies are looked for
        limits = SearchLimits(max(numbers) + 1, tries, seconds, shown=tries)
        told = explain(partitioned, machine, limits, comparer=comparer)
    return Checked(told.program, baseline_of(told).totals, tuple(_with_cause(f, told, comparer) for f in faults))


def record(partitioned: PartitionedProgram, budget: ProgramBudget) -> Baseline:
    """Write the totals of the program as the budget's baseline. Raises `InputError` where it names no file."""
    if budget.baseline is None:
        raise InputError("the budget names no file for the totals", fix='add baseline = "step.json" to the budget')
    made = baseline_of(explain(partitioned, budget.placed_machine))
    write_baseline(budget.baseline, made)
    return made


def _warn_of_another(kind: str, budget: ProgramBudget, before: str, now: str) -> None:
    if before != now:
        text = "the baseline %s is of another %s: %s, not %s"
        logging.getLogger("shardc").warning(text, budget.baseline, kind, before or "none", now or "none")


def _forbidden(comparer: ProgramComparer, told: Explanation, budget: ProgramBudget) -> Iterator[_Fault]:
    """The collectives that a rule forbids."""
    groups = collect_collectives(comparer.base, comparer.price())
    links = _links_of(comparer.base, groups, budget)
    for rule in budget.forbid:
        broken = [number for number, group in enumerate(groups) if _forbids(rule, group, links)]
        for number in broken:
            c = told.collectives[number]
            size, above = apart_text(bytes_text, c.payload_bytes, rule.above, "B")
            what = f"{c.op} of {c.value or c.names[0]}{_how(c, links)}, {size}{_times(c)}"
            others = frozenset[object]().union(*(groups[n].keys for n in broken if n != number)) - groups[number].keys
            yield _Fault(Violation(_rule_text(rule, above), what), number, _left_of(rule, budget, others))


def _left_of(
    rule: Forbidden, budget: ProgramBudget, others: frozenset[object]
) -> Callable[[PartitionedProgram, ProgramTotals], tuple[float, str]]:
    """What a program has that the rule forbids, besides what is about ``others``, which are told on their own."""

    def left(partitioned: PartitionedProgram, totals: ProgramTotals) -> tuple[float, str]:
        groups = collect_collectives(partitioned)
        links = _links_of(partitioned, groups, budget)
        found = [g for g in groups if g.keys - others and _forbids(rule, g, links)]
        if not found:
            return 0.0, ""
        row = max(found, key=lambda g: float(g.rows[0]["payload_bytes"])).rows[0]
        size, _ = apart_text(bytes_text, row["payload_bytes"], rule.above, "B")
        count = sum(len(g.rows) for g in found) - 1
        more = f" and {count_text(count, 'other')}" if count else ""
        told = f"{row['op']} of {row['value'] or row['name']}, {size}{more}"
        return sum(float(r["payload_bytes"]) for g in found for r in g.rows), told

    return left


def _exceeded(told: Explanation, budget: ProgramBudget, known: Baseline | None) -> Iterator[_Fault]:
    """The totals that are above a limit, or above the baseline."""
    totals = baseline_of(told).totals
    largest = 0 if told.collectives else None
    for name, limit in budget.limits.items():
        if totals[name] > limit:
            here, most = _shown(name, totals[name], limit)
            what = f"{name} {here} is above the limit of {most}"
            number = largest if name in _SENT else None
            yield _Fault(Violation(f"limits.{name}", what), number, _left_above(name, totals[name], limit))
    for name in TOTALS if known is not None else ():
        before = known.totals.get(name) if known is not None else None
        if before is None or name not in totals or known is None:
            continue
        bound = before * (1 + budget.allowed_over(name)) + 1e-12
        if totals[name] > bound:
            grew = f" (+{(totals[name] / before - 1):.1%})" if before else ""
            now, then = _shown(name, totals[name], before)
            what = f"{name} rose from {then} in the baseline to {now}{grew}"
            number = _grown(told, known) if name in _SENT else None
            yield _Fault(Violation(f"baseline.{name}", what), number, _left_above(name, totals[name], bound))


def _left_above(
    name: str, before: float, most: float
) -> Callable[[PartitionedProgram, ProgramTotals], tuple[float, str]]:
    """By how much a program's total is above ``most``; infinity where it is no lower than ``before``."""

    def left(partitioned: PartitionedProgram, totals: ProgramTotals) -> tuple[float, str]:
        after = getattr(totals, name)
        if after is None or after <= most:
            return 0.0, ""
        return after - most if after < before else float("inf"), f"{name} {_shown(name, after, most)[0]}"

    return left


def _forbids(rule: Forbidden, group: CollectiveGroup, links: Mapping[str, tuple[str, ...]]) -> bool:
    row = group.rows[0]
    if not fnmatchcase(row["op"], rule.op) or (rule.axis and rule.axis not in row["axes"]):
        return False
    if row["payload_bytes"] <= rule.above:
        return False
    if rule.link and not any(rule.link in links.get(r["name"], ()) for r in group.rows):
        return False
    lines = [line if ":" in line else f"{line}:*" for line in rule.allowed]  # a file means all its lines
    return not any(fnmatchcase(row["source"], line) or fnmatchcase(row["source"], f"*/{line}") for line in lines)


def _check_rules(partitioned: PartitionedProgram, budget: ProgramBudget) -> None:
    """Raise `InputError` for rules about axes or links that are not there."""
    mesh = partitioned.module.mesh
    axes = () if mesh is None else mesh.axis_names
    for number, rule in enumerate(budget.forbid, 1):
        if rule.axis and rule.axis not in axes:
            fix = f"use one of {', '.join(axes)}" if axes else "give the program a mesh, or leave axis out"
            raise InputError(
                f"the mesh has no axis {rule.axis!r}", where=f"{budget.place}: forbid {number}: axis", fix=fix
            )
    if budget.placed_machine is None:
        return
    machine = load_machine(budget.placed_machine)
    kinds = [level.name for level in machine.levels]
    for number, rule in enumerate(budget.forbid, 1):
        if rule.link and rule.link not in kinds:
            fix = f"use one of {', '.join(kinds)}"
            raise InputError(
                f"{machine.name} has no links {rule.link!r}", where=f"{budget.place}: forbid {number}: link", fix=fix
            )


def _links_of(
    partitioned: PartitionedProgram, groups: Sequence[CollectiveGroup], budget: ProgramBudget
) -> dict[str, tuple[str, ...]]:
    """The kinds of links that each collective goes over, by its name; nothing without a machine."""
    mesh = partitioned.module.mesh
    if budget.placed_machine is None or mesh is None:
        return {}
    placement = place(load_machine(budget.placed_machine), mesh)
    found = {}
    for group in groups:
        for row, op in zip(group.rows, group.instructions, strict=True):
            members = op.attrs.get("replica_groups", op.attrs.get("source_target_pairs"))
            names = (part.links.name.partition(" ")[0] for part in placement.parts(members))
            found[str(row["name"])] = tuple(dict.fromkeys(names))
    return found


def _grown(told: Explanation, known: Baseline) -> int | None:
    """The collective that sends most more than in the baseline; None where none does."""
    before = {row[:3]: row[3] for row in known.collectives}
    more = [c.wire_bytes - before.get((c.op, c.value, c.line), 0.0) for c in told.collectives]
    most = max(more, default=0.0)
    return more.index(most) if most > 0 else None


def _with_cause(fault: _Fault, told: Explanation, comparer: ProgramComparer) -> Violation:
    if fault.number is None:
        return replace(fault.violation, remedy="if this is meant, raise the limit, or record a new baseline")
    c = told.collectives[fault.number]
    return replace(
        fault.violation,
        line=c.line,
        reason=c.reason,
        remedy=_remedy_text(fault, c, comparer),
        collective=c.names[0],
    )


def _remedy_text(fault: _Fault, c: CollectiveReason, comparer: ProgramComparer) -> str:
    """The remedy that leaves least, with what it leaves."""
    found = []
    for number, remedy in enumerate(c.remedies):
        changes = tuple((change.name, change.spec) for change in remedy.changes)
        after = comparer.with_annotations(comparer.base.program, changes)
        if after is not None:
            amount, rest = fault.left(after, remedy.after)
            found.append((amount, number, rest))
    if not found:
        return f"none found: {c.why_none or 'no annotation was tried; shardc explain looks for one'}"
    amount, number, rest = min(found)
    if amount == float("inf"):
        return f"none found: what was tried sends less, but does not lower {fault.violation.rule.partition('.')[2]}"
    best = c.remedies[number]
    told = f"{best.what}: {' '.join(change.option for change in best.changes)}"
    return f"{told} (leaves {rest})" if rest else told


def _rule_text(rule: Forbidden, above: str) -> str:
    parts = [rule.op if rule.op != "*" else "collectives"]
    parts += [f"over {rule.axis}"] * bool(rule.axis) + [f"on {rule.link}"] * bool(rule.link)
    parts += [f"above {above}"] * (rule.above >= 0)
    return f"forbid {' '.join(parts)}"


def _how(c: CollectiveReason, links: Mapping[str, tuple[str, ...]]) -> str:
    """Axes and links."""
    axes = f" over {'+'.join(c.axes)}" if c.axes else ""
    over = links.get(c.names[0], ())
    return axes + (f" on {'+'.join(over)}" if over else "")


def _times(c: CollectiveReason) -> str:
    """The number of executions, where there are several."""
    times = c.count * len(c.names)
    return f", {times} times" if times > 1 else ""


def _shown(name: str, now: float, before: float) -> tuple[str, str]:
    """Two values of a total, in texts that differ."""
    form, unit = _FORMS.get(name, (bytes_text, "B"))
    return apart_text(form, now, before, unit)
