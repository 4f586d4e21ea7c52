"""What a plan says of itself, as text for a terminal, and as a table for notebooks."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.hlo.units import bytes_text, count_text
from shardc.launcher.drawings.fragments import ROWS, file_name, line, table
from shardc.partitioner.plan.plan_reasons import LayoutDecision, MemoryRow, PlanReasons

__all__ = ["plan_html", "plan_text"]


def plan_text(plan: PlanReasons, *, top: int = 10, verbose: bool = False) -> Iterator[str]:
    """Lines: what the plan comes to, the ``top`` decisions that tell most (0, or ``verbose``: all), and where memory
    limits the plan."""
    yield f"plan: {_taken(plan)}"
    yield f"   {_proven(plan)}"
    shown = plan.decisions if verbose or top <= 0 else plan.most_telling(top)
    for d in shown:
        yield from _decision(plan, d)
    left = len(plan.decisions) - len(shown)
    if left:
        yield f"   and {count_text(left, 'more decision')} (-v, or verbose=True, shows them)"
    for row in plan.rows:
        yield from _row(plan, row)


def plan_html(plan: PlanReasons) -> str:
    """The decisions that tell most, as a table."""

    def more(cost: float | None) -> str:
        return "" if cost is None else f"+{plan.cost_text(cost)}"

    rows = [
        (
            d.names[0] + (f" (+{len(d.names) - 1} like it)" if len(d.names) > 1 else ""), str(d.shape), str(d.wanted),
            str(d.chosen) if d.moved else "the same", more(d.wanted_more) if d.moved else "",
            "" if d.next_best is None else f"{d.next_best} {more(d.next_more)}", file_name(d.source),
        )
        for d in plan.most_telling(ROWS)
    ]  # fmt: skip
    columns = ("decided value", "shape", "propagated", "planned", "extra cost as propagated", "next best", "source")
    return line(f"Plan: {_taken(plan)}") + line(_proven(plan)) + table(columns, rows, ROWS)


def _proven(plan: PlanReasons) -> str:
    text = plan.cost_text
    if not plan.taken:
        return f"by the model's prices the best plan costs {text(plan.cost)}; {plan.proof}"
    return f"by its own model {text(plan.cost)} instead of {text(plan.wanted_cost)}; {plan.proof}"


def _taken(plan: PlanReasons) -> str:
    if not plan.taken:
        return f"the propagated layouts stay: {plan.why}"
    after, before = plan.judged, plan.judged_wanted
    told = f"{len(plan.moved)} of {len(plan.decisions)} decided values have another layout than propagation gave them"
    told += f"; memory {bytes_text(after.peak)} instead of {bytes_text(before.peak)}"
    if plan.limit is not None:
        return told + f", at most {bytes_text(plan.limit)}"
    return told + (", at most as much as without the plan" if plan.rows else "")


def _decision(plan: PlanReasons, d: LayoutDecision) -> Iterator[str]:
    many = f" (+{len(d.names) - 1} like it)" if len(d.names) > 1 else ""
    what = d.opcode if d.role == "value" else f"{d.role} array {d.leaf}" if d.role == "loop" else d.role
    where = f" ({d.source})" if d.source else ""
    instead = f" instead of {d.wanted}" if d.moved else " as propagated"
    yield f"   - {what} {d.names[0]}{many} {d.shape}{where}: {d.chosen}{instead}"
    others = []
    if d.moved and d.wanted_more is not None:
        others.append(f"as propagated it costs {plan.cost_text(d.wanted_more)} more")
    if d.next_best is not None and d.next_more is not None:
        others.append(f"next best {d.next_best}, {plan.cost_text(d.next_more)} more")
    if d.binds:
        full = ", ".join(f"%{plan.rows[n].at}" for n in d.binds)
        others.append(f"{bytes_text(d.local_bytes)} of a device where memory limits the plan, at {full}")
    if others:
        yield f"     {'; '.join(others)}"


def _row(plan: PlanReasons, row: MemoryRow) -> Iterator[str]:
    where = f" ({row.source})" if row.source else ""
    used = f"{bytes_text(row.usage)} of {bytes_text(row.limit)}"
    unit, saved = row.more
    yield f"   memory limits the plan at %{row.at}{where}: {used}; one more {unit} would save {plan.cost_text(saved)}"
    if row.heaviest:
        yield "     most of it: " + ", ".join(f"{name} {bytes_text(n)}" for name, n in row.heaviest)
