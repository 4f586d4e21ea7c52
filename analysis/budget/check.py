"""Checks a partitioned program against a budget; what exceeds it comes with source line, reason and remedy.

Collectives are those of the explanation, so their reasons are. Remedies are looked for where something is wrong only.
Bytes sent, or a time, that exceed the baseline name the collective that grew most.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from shardc.analysis.budget.baseline import Baseline, baseline_of, read_baseline, write_baseline
from shardc.analysis.budget.budget import TOTALS, Forbidden, ProgramBudget
from shardc.analysis.budget.violation import Checked, Violation
from shardc.analysis.explain.collect import collect_collectives
from shardc.analysis.explain.explain import explain
from shardc.analysis.explain.explanation import CollectiveReason, Explanation, Remedy
from shardc.analysis.explain.remedies import SearchLimits
from shardc.costs.machines.machine import load_machine
from shardc.costs.network.mapping import place
from shardc.hlo.errors import InputError
from shardc.hlo.units import apart_text, bytes_text, flops_text, seconds_text, sizes_text
from shardc.partitioner.program import PartitionedProgram

__all__ = ["check", "record"]

#: The totals that a collective may be the reason of.
_SENT = ("wire_bytes", "seconds")
#: How totals that are no bytes are written, and in which unit in full.
_FORMS = {"seconds": (seconds_text, "s"), "flops": (flops_text, "flop")}
_UPDATE = "record one with --update (shardc check) or --update-budgets (pytest)"


def check(
    partitioned: PartitionedProgram, budget: ProgramBudget, *, remedies: int = 3, tries: int = 12, seconds: float = 30.0
) -> Checked:
    """What of ``budget`` the program exceeds.

    Remedies are looked for with the first ``remedies`` collectives at fault, at most ``tries`` annotations for each,
    and no new one after ``seconds``. Raises `InputError` for unknown machines and links, and where the baseline is
    missing.
    """
    machine = budget.placed_machine
    told = explain(partitioned, machine)
    known = None if budget.baseline is None else read_baseline(budget.baseline, _UPDATE)
    if known is not None:
        _warn_of_another("mesh", budget, sizes_text(known.mesh), sizes_text(told.mesh))
        _warn_of_another("machine", budget, known.machine, told.machine)
    links = _links_of(partitioned, budget)
    blamed = list(_blamed(told, budget, known, links))
    numbers = [n for n, _ in blamed if n is not None][:remedies]
    if numbers:  # collectives come in the order in which remedies are looked for
        limits = SearchLimits(max(numbers) + 1, tries, seconds)
        told = explain(partitioned, machine, limits)
    return Checked(told.program, baseline_of(told).totals, tuple(_with_cause(v, told, n) for n, v in blamed))


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


def _blamed(
    told: Explanation, budget: ProgramBudget, known: Baseline | None, links: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[int | None, Violation]]:
    """What is exceeded, with the number of the collective at fault."""
    for rule in budget.forbid:
        for number, c in enumerate(told.collectives):
            if _forbids(rule, c, links):
                yield number, Violation(_rule_text(rule), f"{c.op} of {c.value or c.names[0]}{_how(c, links)}")
    totals = baseline_of(told).totals
    largest = 0 if told.collectives else None
    for name, limit in budget.limits.items():
        if totals[name] > limit:
            here, most = _shown(name, totals[name], limit)
            what = f"{name} {here} is above the limit of {most}"
            yield largest if name in _SENT else None, Violation(f"limits.{name}", what)
    for name in TOTALS if known is not None else ():
        before = known.totals.get(name) if known is not None else None
        if before is None or name not in totals or known is None:
            continue
        if totals[name] > before * (1 + budget.allowed_over(name)) + 1e-12:
            grew = f" (+{(totals[name] / before - 1):.1%})" if before else ""
            now, then = _shown(name, totals[name], before)
            what = f"{name} {now} was {then} in the baseline{grew}"
            yield _grown(told, known) if name in _SENT else None, Violation(f"baseline.{name}", what)


def _forbids(rule: Forbidden, c: CollectiveReason, links: Mapping[str, tuple[str, ...]]) -> bool:
    if not fnmatchcase(c.op, rule.op) or (rule.axis and rule.axis not in c.axes) or c.payload_bytes <= rule.above:
        return False
    if rule.link and not any(rule.link in links.get(name, ()) for name in c.names):
        return False
    lines = [line if ":" in line else f"{line}:*" for line in rule.allowed]  # a file means all its lines
    return not any(fnmatchcase(c.line, line) or fnmatchcase(c.line, f"*/{line}") for line in lines)


def _links_of(partitioned: PartitionedProgram, budget: ProgramBudget) -> dict[str, tuple[str, ...]]:
    """The kinds of links that each collective goes over, by its name; nothing without a machine."""
    mesh = partitioned.module.mesh
    axes = () if mesh is None else mesh.axis_names
    for number, rule in enumerate(budget.forbid, 1):
        if rule.axis and rule.axis not in axes:
            fix = f"use one of {', '.join(axes)}" if axes else "give the program a mesh, or leave axis out"
            raise InputError(
                f"the mesh has no axis {rule.axis!r}", where=f"{budget.place}: forbid {number}: axis", fix=fix
            )
    if budget.placed_machine is None:
        return {}
    machine = load_machine(budget.placed_machine)
    kinds = [level.name for level in machine.levels]
    for number, rule in enumerate(budget.forbid, 1):
        if rule.link and rule.link not in kinds:
            fix = f"use one of {', '.join(kinds)}"
            raise InputError(
                f"{machine.name} has no links {rule.link!r}", where=f"{budget.place}: forbid {number}: link", fix=fix
            )
    if mesh is None:
        return {}
    placement = place(machine, mesh)
    found = {}
    for group in collect_collectives(partitioned):
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


def _with_cause(violation: Violation, told: Explanation, number: int | None) -> Violation:
    if number is None:
        fix = "if this is meant, raise the limit, or record a new baseline"
        return Violation(violation.rule, violation.what, remedy=fix)
    c = told.collectives[number]
    total = violation.rule.partition(".")[2]
    best = next((r for r in c.remedies if _lowers(r, total)), None)
    if best is not None:
        remedy = f"{best.what}: {' '.join(change.option for change in best.changes)}"
    elif c.remedies:
        remedy = f"none found: what was tried sends less, but does not lower {total}"
    else:
        remedy = f"none found: {c.why_none or 'no annotation was tried; shardc explain looks for one'}"
    return Violation(violation.rule, violation.what, c.line, c.reason, remedy, c.names[0])


def _lowers(remedy: Remedy, total: str) -> bool:
    """Whether the remedy lowers the program's total of this name. True where there is none, or it is unknown."""
    if not hasattr(remedy.after, total):
        return True
    before, after = getattr(remedy.before, total), getattr(remedy.after, total)
    return before is None or after is None or after < before


def _rule_text(rule: Forbidden) -> str:
    parts = [rule.op if rule.op != "*" else "collectives"]
    parts += [f"over {rule.axis}"] * bool(rule.axis) + [f"on {rule.link}"] * bool(rule.link)
    parts += [f"above {bytes_text(rule.above)}"] * (rule.above >= 0)
    return f"forbid {' '.join(parts)}"


def _how(c: CollectiveReason, links: Mapping[str, tuple[str, ...]]) -> str:
    """Axes, links, size and number of executions."""
    axes = f" over {'+'.join(c.axes)}" if c.axes else ""
    over = links.get(c.names[0], ())
    times = c.count * len(c.names)
    on = f" on {'+'.join(over)}" if over else ""
    return f"{axes}{on}, {bytes_text(c.payload_bytes)}" + (f", {times} times" if times > 1 else "")


def _shown(name: str, now: float, before: float) -> tuple[str, str]:
    """Two values of a total, in texts that differ."""
    form, unit = _FORMS.get(name, (bytes_text, "B"))
    return apart_text(form, now, before, unit)
