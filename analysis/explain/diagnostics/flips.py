"""Values that are laid out otherwise and back again, with nothing in between that needs it."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.analysis.explain.chains import layout_text
from shardc.analysis.explain.collect import CollectiveGroup
from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.hlo.ir.ir import Computation, Instruction, users_of
from shardc.hlo.ir.opset import OPS
from shardc.hlo.units import bytes_text
from shardc.partitioner.strategy.cause import Cause

__all__ = ["flips"]

#: Operations on the way back that could as well have worked on the first layout.
_LIGHT = frozenset(("copy", "custom-call", "reshape", "transpose", "optimization-barrier", "get-tuple-element"))


def flips(survey: Survey) -> Iterator[Diagnostic]:
    """One warning per way there, with the first way back."""
    moves = [(g, cs[0]) for g in survey.groups for cs in g.causes[:1] if cs and not cs[0].before.unreduced]
    module = survey.partitioned.propagated.module
    finder = _Finder(module.computations)
    for there, first in moves:
        for back, second in moves:
            undone = there is not back and _returns(first, second)
            if undone and survey.matters(there, back) and finder.leads(first, second):
                yield _warned(survey, (there, first), (back, second))
                break


def _returns(first: Cause, second: Cause) -> bool:
    """Whether the second move undoes the first."""
    same = second.after is first.before and second.before is first.after
    return same and first.shape.dims == second.shape.dims


def _warned(survey: Survey, there: tuple[CollectiveGroup, Cause], back: tuple[CollectiveGroup, Cause]) -> Diagnostic:
    group, cause = there
    name = f"%{cause.value}" if survey.candidates is None else survey.candidates.tracer.name(cause)
    both = group.wire_bytes + back[0].wire_bytes
    count = group.rows[0]["count"]
    loop = f", {count} times in a step" if count > 1 else ""
    text = (
        f"{name} goes from {layout_text(cause.table, cause.before)} to {layout_text(cause.table, cause.after)} and, as"
        f" %{back[1].value}, back{loop}: {bytes_text(both)} on the wire, which no operation needs"
    )
    tried = survey.remedies.for_group(group) if survey.remedies is not None else None
    remedy = tried.remedies[0] if tried is not None and tried.remedies else None
    numbers = {"wire_bytes": both, "times": float(count)}
    names = tuple(r["name"] for g in (group, back[0]) for r in g.rows)
    way = f"give the values in between the layout of {name}, or drop the constraint there"
    return Diagnostic("back-and-forth", text, name, group.rows[0]["source"], numbers, Suggestion(way, remedy), names)


class _Finder:
    """Ways through a global program that pass light operations only."""

    def __init__(self, computations: tuple[Computation, ...]) -> None:
        self.named = {i.name: (i, c) for c in computations for i in c}
        self._users: dict[Computation, dict[Instruction, list[Instruction]]] = {}

    def leads(self, first: Cause, second: Cause) -> bool:
        """Whether the second value is made of the first one by operations that work alike on any layout."""
        start = self.named.get(first.operand.name if first.operand is not None else first.value)
        end = self.named.get(second.operand.name if second.operand is not None else second.value)
        if start is None or end is None or start[1] is not end[1]:
            return False
        return self._through(start[0], end[0], start[1]) or self._around(first, second, start[1])

    def _through(self, start: Instruction, end: Instruction, computation: Computation) -> bool:
        if computation not in self._users:
            self._users[computation] = users_of(computation)
        users = self._users[computation]
        seen, work = {start}, [start]
        for i in work:
            if i is end:
                return i is not start
            for reader in users.get(i, []):
                light = reader.opcode in _LIGHT or OPS[reader.opcode].family == "elementwise"
                if reader not in seen and light and reader.shape.is_array and reader.shape.dims == start.shape.dims:
                    seen.add(reader)
                    work.append(reader)
        return False

    def _around(self, first: Cause, second: Cause, loop: Computation) -> bool:
        """Whether a loop takes its state in one layout and works on it in another, in every iteration."""
        if first.operand is None or second.reader is None or second.reader.name != loop.root.name:
            return False
        taken = self.named[first.operand.name][0]
        if taken.opcode != "get-tuple-element" or taken.operands[0].opcode != "parameter":
            return False
        number = taken.attrs["index"]
        root = loop.root
        return root.opcode == "tuple" and number < len(root.operands) and root.operands[number].name == second.value
