"""Two annotation sets of one program compared: collectives, totals, shardings."""

from __future__ import annotations

from shardc.analysis.explain.chains import CauseTracer
from shardc.analysis.explain.collect import collect_collectives
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.explanation import Difference
from shardc.partitioner.program import PartitionedProgram

__all__ = ["difference"]

#: Bytes on the wire and executions, before and after.
_Row = list[float]


def difference(before: PartitionedProgram, after: PartitionedProgram, machine: str | None = None) -> Difference:
    """What changes from one annotation set to another of the same program; seconds on a ``machine``, if given.

    Comparing the other way round gives the same rows, before and after exchanged.
    """
    comparer = ProgramComparer(before, machine)
    rows: dict[str, _Row] = {}
    for side, partitioned in enumerate((before, after)):
        _count(partitioned, rows, side)
    changed = [(what, r[0], r[2], int(r[1]), int(r[3])) for what, r in rows.items() if r[:2] != r[2:]]
    changed.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
    shardings = _shardings(before, after)
    return Difference(comparer.totals(before), comparer.totals(after), tuple(changed), shardings)


def _count(partitioned: PartitionedProgram, rows: dict[str, _Row], side: int) -> None:
    """Collectives by what they move for whom; combined ones by their largest part."""
    history = partitioned.propagated.provenance
    tracer = None if history is None else CauseTracer(history)
    for group in collect_collectives(partitioned):
        for row, causes in zip(group.rows, group.causes, strict=True):
            value = row["value"]
            if causes:
                value = f"%{causes[0].value}" if tracer is None else tracer.name(causes[0])
            what = f"{row['op']} of {value} over {'+'.join(row['axes']) or 'groups'}"
            what += f" at {row['source']}" if row["source"] else ""
            found = rows.setdefault(what, [0.0, 0, 0.0, 0])
            found[2 * side] += row["wire_bytes"]
            found[2 * side + 1] += row["count"]


def _shardings(before: PartitionedProgram, after: PartitionedProgram) -> tuple[tuple[str, str, str], ...]:
    """Values that lie differently, by name, in the program's order; those that one side lacks are left out."""
    old, new = (p.propagated.provenance for p in (before, after))
    if old is None or new is None:
        return ()
    lies = {new.name(v): str(s.as_layout) for v, s in enumerate(new.shardings)}
    out = []
    for v, sharding in enumerate(old.shardings):
        name, text = old.name(v), str(sharding.as_layout)
        if lies.get(name, text) != text:
            out.append((name, text, lies[name]))
    return tuple(dict.fromkeys(out))
