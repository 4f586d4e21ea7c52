"""Communication of a program's steps, measured: the time in which devices waited, and the time that computation hid.

*Exposed* is the time in which a process did nothing but a collective: all of a synchronous one, and the start and await
of others. *Hidden* is the rest of the time in which a transfer was under way, as the transport's collective executor
tells (`transfers()`: transfers and nanoseconds by collective); 0 where it has no such times. The bytes of a collective
are those of a device's operands; of a ragged exchange they are the rows that were sent, as the collective executor
counts them (`row_bytes()`), on average over devices.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardc.collectives.call.call import CollectiveCall

__all__ = [
    "COMMUNICATION_COLUMNS",
    "CallTime",
    "CollectiveEvent",
    "Counts",
    "communication_cells",
    "communication_summary",
    "communication_times",
    "counts",
    "recent_events",
]

#: Titles of `communication_cells`.
COMMUNICATION_COLUMNS = ("collective", "at", "times", "bytes", "exposed us", "hidden us", "% hidden")

#: By collective: executions, nanoseconds exposed, transfers beside computing, nanoseconds that these took, bytes of a
#: ragged exchange's rows.
Counts = Mapping[int, tuple[int, int, int, int, float]]

#: (collective, phase: 0 whole, 1 start, 2 done, begin, end) in nanoseconds of the monotonic clock.
CollectiveEvent = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class CallTime:
    """One collective of the program; ``times`` and seconds are per step, seconds the mean over ranks, ``slowest`` is
    the exposed time of the rank that stood still longest. ``nbytes`` are a device's operands, or
    the rows of a ragged exchange, in one execution."""

    name: str
    op: str
    source: str
    asynchronous: bool
    times: float
    nbytes: int
    exposed: float
    hidden: float
    slowest: float


def counts(driver: Any) -> Counts:
    """What this process's collectives took since its driver was made; zeros for those that a GPU does by itself."""
    loop = driver._loop
    found: dict[int, tuple[int, int, int, int, float]] = dict.fromkeys(driver._calls, (0, 0, 0, 0, 0.0))
    if loop is None:
        return found
    told: Callable[[], Mapping[int, tuple[int, int]]] | None = getattr(driver._executor, "transfers", None)
    transfers = {} if told is None else told()
    counted: Callable[[], Mapping[int, float]] | None = getattr(driver._executor, "row_bytes", None)
    rows = {} if counted is None else counted()
    for index in driver._calls:
        record = loop.records[index] if index < len(loop.records) else None
        if record is not None and record.kind:
            exposed = record.nanoseconds + record.done_nanoseconds
            found[index] = (record.count, exposed, *transfers.get(index, (0, 0)), rows.get(index, 0.0))
    return found


def recent_events(driver: Any, since: int) -> list[CollectiveEvent]:
    """The newest collectives of this process that began at ``since`` or later, oldest first."""
    loop = driver._loop
    history = [] if loop is None else loop.history
    return [(e.index, e.phase, e.begin, e.end) for e in history if e.end and e.begin >= since]


def communication_times(
    calls: Sequence[CollectiveCall], steps: int, before: Sequence[Counts], after: Sequence[Counts]
) -> list[CallTime]:
    """The collectives that ran in ``steps`` steps, longest exposed first; ``before`` and ``after`` are `counts` of all
    ranks."""
    rows = []
    for call in calls:
        spent = [
            tuple(b - a for a, b in zip(old[call.index], new[call.index], strict=True))
            for old, new in zip(before, after, strict=True)
        ]
        times = max(s[0] for s in spent)
        if not times:
            continue
        exposed = [s[1] * 1e-9 / steps for s in spent]
        hidden = [max(0, s[3] - s[1]) * 1e-9 / steps if s[2] else 0.0 for s in spent]
        rows.append(
            CallTime(
                call.name,
                call.op,
                call.source,
                call.asynchronous,
                times / steps,
                round(statistics.fmean(s[4] for s in spent) / times) if call.ragged else _operand_bytes(call),
                statistics.fmean(exposed),
                statistics.fmean(hidden),
                max(exposed),
            )
        )
    return sorted(rows, key=lambda r: (-r.exposed, r.name))


def _operand_bytes(call: CollectiveCall) -> int:
    return sum(o.operand.nbytes for o in call.operands)


def communication_summary(rows: Sequence[CallTime], step_seconds: float) -> dict[str, Any]:
    """Plain data for JSON: sums of a step, shares of ``step_seconds``, and the collectives."""
    exposed, hidden = sum(r.exposed for r in rows), sum(r.hidden for r in rows)
    return {
        "exposed_seconds": exposed,
        "hidden_seconds": hidden,
        "exposed_of_step": exposed / step_seconds if step_seconds else 0.0,
        "hidden_of_communication": hidden / (exposed + hidden) if exposed + hidden else 0.0,
        "collectives": [asdict(r) for r in rows],
    }


def communication_cells(rows: Sequence[Mapping[str, Any]], most: int = 12) -> list[tuple[str, ...]]:
    """One line of text for each of ``rows`` (as dicts), those of one operation and source line added up; the ``most``
    longest exposed."""
    groups: dict[tuple[str, str], _Sum] = {}
    for r in rows:
        op = f"{r['op']} (async)" if r["asynchronous"] else r["op"]
        place = r["source"].rpartition("/")[2] or f"%{r['name']}"
        groups.setdefault((op, place), _Sum()).add(r)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].exposed, item[0]))
    return [(*key, *total.cells()) for key, total in ordered[:most]]


@dataclass(slots=True)
class _Sum:
    times: float = 0.0
    nbytes: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        self.times += row["times"]
        self.nbytes += row["times"] * row["nbytes"]
        self.exposed += row["exposed"]
        self.hidden += row["hidden"]

    def cells(self) -> tuple[str, ...]:
        both = self.exposed + self.hidden
        share = f"{100 * self.hidden / both:.0f}" if both else ""
        return (f"{self.times:g}", f"{self.nbytes:.0f}", f"{self.exposed * 1e6:.1f}", f"{self.hidden * 1e6:.1f}", share)
