"""Explanations as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.analysis.explain.explanation import (
    CollectiveReason,
    Diagnostic,
    Difference,
    Explanation,
    FactorChoice,
    Link,
    Party,
    ProgramTotals,
    Remedy,
)
from shardc.analysis.explain.plan_text import plan_text
from shardc.hlo.units import bytes_text, count_text, flops_text, seconds_text

__all__ = ["difference_text", "explanation_text"]

#: Links of a chain, parties and alternatives that are told when nobody asks for all.
_LINKS = 2
_PARTIES = 3
_ALTERNATIVES = 2
_CHANGES = 3
_NO_MESH = (
    "the program has no mesh: --mesh data=4 gives it one, and --annotate ARGUMENT=data splits an argument over it "
    '(in Python: annotate({"ARGUMENT": P("data")}, mesh={"data": 4}))'
)


def explanation_text(told: Explanation, *, top: int = 10, verbose: bool = False) -> str:
    """See `Explanation.as_text`."""
    mesh = ", ".join(f"{k}={v}" for k, v in told.mesh.items())
    place = f"{count_text(told.devices, 'device')}{f' ({mesh})' if mesh else ''}"
    lines = [f"{told.program} on {place}: {_totals(told.totals)}"]
    if told.plan is not None:
        lines += ["", *plan_text(told.plan, top=top, verbose=verbose)]
    elif verbose and told.why_no_plan:
        lines += ["", f"no plan was taken: {told.why_no_plan}"]
    shown = told.collectives if top <= 0 else told.collectives[:top]
    for number, c in enumerate(shown, 1):
        lines += ["", *_collective(c, number, told, verbose)]
    left = told.collectives[len(shown) :]
    if left:
        rest = sum(c.wire_bytes for c in left)
        lines += [
            "",
            f"and {sum(len(c.names) for c in left)} more, {bytes_text(rest)} together (--top 0, or top=0, shows all)",
        ]
    if not told.collectives:
        lines.append("no collectives: no data moves between devices")
    if not told.mesh and told.devices == 1:
        lines.append(_NO_MESH)
    for w in told.warnings:
        lines += ["", *_warning(w)]
    return "\n".join(lines)


def _totals(t: ProgramTotals) -> str:
    text = f"{count_text(t.collectives, 'collective')} a step, {bytes_text(t.wire_bytes)} on the wire per device"
    text += f", {flops_text(t.flops)}, {bytes_text(t.peak_bytes)} of memory"
    return text + (f", {seconds_text(t.seconds)}" if t.seconds is not None else "")


def _collective(c: CollectiveReason, number: int, told: Explanation, verbose: bool) -> Iterator[str]:
    axes = "+".join(c.axes) or "groups"
    times = f", {c.count} times" if c.count != 1 else ""
    times += " or more" if c.unknown_trip_count else ""
    many = f" x {len(c.names)}" if len(c.names) > 1 else ""
    cost = bytes_text(c.wire_bytes)
    share = c.wire_bytes / told.totals.wire_bytes if told.totals.wire_bytes else 0.0
    cost += f" ({share:.0%})" + (f", {seconds_text(c.seconds)}" if c.seconds is not None else "")
    yield f"{number}. {c.op} %{c.names[0]}{many} over {axes} ({count_text(c.group_size, 'device')}{times}): {cost}"
    if c.value:
        layouts = f" from {c.before} to {c.after}" if c.before != c.after else ""
        yield f"   moves {c.value} {c.shape}{layouts}"
    if c.line or c.op_name:
        yield "   at " + ", ".join(filter(None, (c.line, c.op_name)))
    if c.reason:
        yield f"   because {c.reason}"
    if c.conflict:
        yield f"   {c.conflict}"
    parties = c.parties if verbose else c.parties[:_PARTIES]
    for party in parties:
        yield from _party(party, verbose, _taken(told))
    if c.choice is not None:
        yield from _choice(c.choice, verbose)
    for remedy in c.remedies:
        yield from _remedy(remedy, verbose)
    if c.why_none:
        yield f"   no remedy: {c.why_none}"


def _party(party: Party, verbose: bool, taken: str) -> Iterator[str]:
    axes = "+".join(party.axes) or "whole"
    factor = f" (factor {party.factor})" if party.factor else ""
    yield f"   - {party.tensor} dimension {party.dimension}{factor}: {axes}"
    chain = party.chain
    if not verbose and len(chain) > 2 * _LINKS + 1:
        for link in chain[:_LINKS]:
            yield "     " + _link(link, taken)
        yield f"     ... {count_text(len(chain) - 2 * _LINKS, 'step')} (-v, or verbose=True, shows them) ..."
        chain = chain[-_LINKS:]
    for link in chain:
        yield "     " + _link(link, taken)
    if party.axes and not chain:
        yield f"     {axes} {taken}: the value itself has another layout"


def _taken(told: Explanation) -> str:
    """Why a value has an axis that no propagation gave it."""
    return "chosen by the plan" if told.plan is not None and told.plan.taken else "chosen because it costs least here"


def _link(link: Link, taken: str) -> str:
    where = f" ({link.line})" if link.line else ""
    axes = "+".join(link.axes) or "kept whole"
    if link.kind == "annotation":
        return f"{axes} by annotation on {link.value} dimension {link.dimension}{where}"
    equation = link.rule.partition(" {")[0]
    return (
        f"-> {link.value} dimension {link.dimension} through {link.via}, factor {link.factor} of {equation},"
        f" {f'change {link.step}' if link.kind == 'step' else taken}{where}"
    )


def _choice(choice: FactorChoice, verbose: bool) -> Iterator[str]:
    split = choice.factors or "nothing"
    yield f"   chosen for {choice.opcode} {choice.operation}: {split}, {_cost(choice.cost, choice.unit)} by itself"
    if choice.regional:
        yield f"     {choice.regional}"
    for other in choice.alternatives if verbose else choice.alternatives[:_ALTERNATIVES]:
        work = f", {other.work:.3g} times the work" if abs(other.work - 1) > 1e-9 else ""
        yield f"     instead of {other.factors or 'nothing'}: {_cost(other.cost, other.unit)}{work}"
    if verbose and choice.rule:
        yield f"     rule {choice.rule}"


def _cost(cost: float, unit: str) -> str:
    return bytes_text(cost) if unit == "B" else seconds_text(cost)


def _remedy(remedy: Remedy, verbose: bool) -> Iterator[str]:
    done = "removes it" if remedy.removes else "makes it cheaper"
    yield f"   remedy ({done}): {remedy.what}"
    changes = remedy.changes if verbose else remedy.changes[:_CHANGES]
    for change in changes:
        yield f"     {change.option}   (now {change.before})"
    if len(changes) < len(remedy.changes):
        yield f"     and {len(remedy.changes) - len(changes)} more (-v, or verbose=True, shows them)"
    yield f"     the whole program: {_gain(remedy)}"
    if remedy.costs:
        yield f"     it costs {remedy.costs}"


def _gain(remedy: Remedy) -> str:
    before, after = remedy.before, remedy.after
    text = f"{bytes_text(after.wire_bytes)} on the wire instead of {bytes_text(before.wire_bytes)}"
    if before.wire_bytes:
        text += f" ({(after.wire_bytes - before.wire_bytes) / before.wire_bytes:+.0%})"
    text += f", memory {bytes_text(after.peak_bytes)} instead of {bytes_text(before.peak_bytes)}"
    if before.seconds is not None and after.seconds is not None:
        text += f", {seconds_text(after.seconds)} instead of {seconds_text(before.seconds)}"
    return text


def _warning(w: Diagnostic) -> Iterator[str]:
    yield f"warning ({w.kind}): {w.text}" + (f" ({w.line})" if w.line else "")
    if w.way_out.text:
        yield f"   fix: {w.way_out.text}"
    if w.way_out.remedy is not None:
        yield from _remedy(w.way_out.remedy, False)


def difference_text(d: Difference) -> str:
    """See `Difference.as_text`."""
    lines = [_changed("wire bytes", d.before.wire_bytes, d.after.wire_bytes, bytes_text)]
    lines.append(_changed("memory", d.before.peak_bytes, d.after.peak_bytes, bytes_text))
    lines.append(_changed("arithmetic", d.before.flops, d.after.flops, flops_text))
    lines.append(_changed("collectives", d.before.collectives, d.after.collectives, lambda n: f"{n:g}"))
    if d.before.seconds is not None and d.after.seconds is not None:
        lines.append(_changed("seconds", d.before.seconds, d.after.seconds, seconds_text))
    for title, rows in _kinds(d):
        if rows:
            lines += ["", title]
            lines += [f"  {r[0]}: {_times(r[1], r[3])} -> {_times(r[2], r[4])}" for r in rows]
    if d.shardings:
        lines += ["", "shardings that differ"]
        lines += [f"  {name}: {before} -> {after}" for name, before, after in d.shardings]
    return "\n".join(lines)


def _times(wire_bytes: float, count: int) -> str:
    return f"{bytes_text(wire_bytes)} ({count_text(count, 'time')})"


def _kinds(d: Difference) -> Iterator[tuple[str, Sequence[tuple[str, float, float, int, int]]]]:
    yield "collectives that vanish", [r for r in d.collectives if r[3] and not r[4]]
    yield "collectives that appear", [r for r in d.collectives if r[4] and not r[3]]
    yield "collectives that grow", [r for r in d.collectives if r[3] and r[4] and r[2] > r[1]]
    yield "collectives that shrink", [r for r in d.collectives if r[3] and r[4] and r[2] < r[1]]


def _changed(what: str, before: float, after: float, text: object) -> str:
    assert callable(text)
    share = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{what}: {text(before)} -> {text(after)}{share}"
