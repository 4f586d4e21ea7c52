"""Values that are gathered whole although their readers need a part of them, or do all the same with them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardc.analysis.explain.collect import CollectiveGroup
from shardc.analysis.explain.diagnostics.survey import PRODUCTS, Survey
from shardc.analysis.explain.explanation import Diagnostic, Suggestion
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.units import bytes_text

__all__ = ["full_gathers"]

#: Operations that only hand on what they read, and those that take a part of it.
_HANDS_ON = frozenset(
    ("bitcast", "convert", "copy", "get-tuple-element", "reshape", "transpose", "optimization-barrier")
)
_TAKES = frozenset(("slice", "dynamic-slice", "gather"))
#: Readers that take no more than this share of what was gathered need a part.
_PART = 0.5


def full_gathers(survey: Survey) -> Iterator[Diagnostic]:
    """One warning for equal all-gathers."""
    for group in survey.groups:
        if group.rows[0]["op"] != "all-gather" or not survey.matters(group):
            continue
        op = group.instructions[0]
        parts = [op] if not op.shape.is_tuple else survey.users[survey.home[op]].get(op, [])
        for part in parts:
            taken = _taken(survey, part)
            if taken is not None and taken <= _PART * part.shape.nbytes:
                text = (
                    f"is gathered whole, {bytes_text(part.shape.nbytes)}, but only {bytes_text(taken)} of it are read"
                )
                yield _warned(survey, group, text, taken)
                break
            again = _repeated(survey, part, frozenset(group.rows[0]["axes"]))
            if again is not None and survey.wasted_share(*again[1:]) >= survey.thresholds.work:
                axes, what = " and ".join(group.rows[0]["axes"]), f"{again[0].opcode} %{again[0].name}"
                text = f"is gathered over {axes}, and all devices along it then compute the same {what}"
                yield _warned(survey, group, text, part.shape.nbytes)
                break


def _warned(survey: Survey, group: CollectiveGroup, what: str, read: int) -> Diagnostic:
    row, cause = group.rows[0], group.causes[0][0] if group.causes[0] else None
    name = f"%{row['value']}"
    if cause is not None and survey.candidates is not None:
        name = survey.candidates.tracer.name(cause)
    tried = survey.remedies.for_group(group) if survey.remedies is not None else None
    remedy = tried.remedies[0] if tried is not None and tried.remedies else None
    numbers = {"wire_bytes": group.wire_bytes, "gathered_bytes": float(row["payload_bytes"]), "read_bytes": float(read)}
    way = "split another dimension of it or of the values it is combined with, so that no device needs it whole"
    names = tuple(r["name"] for r in group.rows)
    return Diagnostic("full-gather", f"{name} {what}", name, row["source"], numbers, Suggestion(way, remedy), names)


def _taken(survey: Survey, value: Instruction) -> int | None:
    """Bytes that readers take of a value, where all of them take a part; None where one reads it whole."""
    users = survey.users[survey.home[value]]
    total, work = 0, [value]
    for i in work:
        readers = users.get(i, [])
        if not readers:
            return None
        for reader in dict.fromkeys(readers):
            if reader.opcode in _HANDS_ON:
                work.append(reader)
            elif reader.opcode in _TAKES and reader.operands[0] is i:
                total += reader.shape.nbytes
            else:
                return None
    return total


def _repeated(survey: Survey, value: Instruction, axes: frozenset[str]) -> tuple[Instruction, int, int] | None:
    """The largest product of what was gathered, where nothing that is made of it differs along ``axes`` again.

    With the operations per step of all such products, and how many devices do them alike.
    """
    users = survey.users[survey.home[value]]
    home = survey.home[value]
    inner = home is not survey.partitioned.module.entry
    seen, work = {value}, [value]
    products: list[Instruction] = []
    for i in work:
        for reader in users.get(i, []):
            if reader in seen:
                continue
            if survey.axes.get(reader, axes) & axes or (inner and reader is home.root):
                return None
            seen.add(reader)
            work.append(reader)
            if reader.opcode in PRODUCTS:
                products.append(reader)
    if not products:
        return None
    work_of = dict(survey.products)
    positions = math.prod(survey.sizes.get(a, 1) for a in axes)
    return max(products, key=lambda p: p.shape.nbytes), sum(work_of.get(p, 0) for p in products), positions
