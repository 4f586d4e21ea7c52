"""Where the processes of a job are: what a watchdog reads before it says who is missing.

A process shows itself in its row of the node's control table (`shardc.collectives.call.control_table`), and the flight
recorder (`shardc.native.drive.records.DriveJob`) has its last collectives. Both stay readable when the process is
stopped or dead.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.control_table import ControlTable
from shardc.collectives.call.membership import Ownership, connected_processes, members_of
from shardc.hlo.units import count_text
from shardc.native.drive.drive_loop import JOB_BYTES, RING, events_of, made_by

__all__ = [
    "DEAD",
    "RUNNING",
    "STOPPED",
    "UNKNOWN",
    "CollectivePlan",
    "NamedCollective",
    "Peer",
    "RankStatus",
    "process_state",
    "rank_statuses",
    "this_process",
]

RUNNING, STOPPED, DEAD = "running", "stopped", "dead"
#: The state of a process that shows nothing.
UNKNOWN = -1
_NUMBERS = (
    "state", "program", "channel", "sequence", "index", "phase", "completed", "step", "polls", "group",
    "exchanges",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of the job; ``started`` tells it from a later one with the same ``pid``."""

    rank: int
    host: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"


def this_process(rank: int) -> Peer:
    """This process as the others know it."""
    return Peer(rank, socket.gethostname(), os.getpid(), _stat(os.getpid())[1])


def process_state(peer: Peer) -> str:
    """`RUNNING`, `STOPPED` or `DEAD`; for processes of this machine."""
    letter, started = _stat(peer.pid)
    if letter in ("", "Z", "X") or started != peer.started:
        return DEAD
    return STOPPED if letter in ("T", "t") else RUNNING


def _stat(pid: int) -> tuple[str, int]:
    """State and start time of a process, as Linux has them; ``("R", 0)`` elsewhere, ``("", 0)`` if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "", 0
    except PermissionError:
        pass
    return ("", 0) if Path("/proc/self/stat").exists() else ("R", 0)


@dataclass(frozen=True, slots=True)
class NamedCollective:
    """A collective of a program as messages name it; ``partners`` are by rank the smallest of the ranks that come
    together there, ``devices`` the group (or the pairs) of each rank's first device."""

    index: int
    op: str
    name: str
    source: str
    reason: str
    partners: tuple[int, ...]
    devices: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} %{self.name} (collective {self.index})"

    @property
    def place(self) -> str:
        """Source line and reason."""
        return (self.source or f"%{self.name}") + (f" ({self.reason})" if self.reason else "")

    def together(self, rank: int) -> frozenset[int]:
        """The ranks that come together with ``rank``, itself among them."""
        return frozenset(r for r, first in enumerate(self.partners) if first == self.partners[rank])


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """The collectives of a program, by index. Ranks without a device of it stand alone."""

    name: str
    collectives: Mapping[int, NamedCollective]

    @staticmethod
    def of(name: str, calls: Sequence[CollectiveCall], ownership: Ownership) -> CollectivePlan:
        return CollectivePlan(name, {c.index: _collective(c, ownership) for c in calls})

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "sites": [asdict(s) for s in self.collectives.values()]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CollectivePlan:
        collectives = [
            NamedCollective(**{**s, "partners": tuple(s["partners"]), "devices": tuple(s["devices"])})
            for s in data["sites"]
        ]
        return CollectivePlan(data["name"], {s.index: s for s in collectives})


def _collective(call: CollectiveCall, ownership: Ownership) -> NamedCollective:
    members = members_of(call, ownership.num_devices)
    partners = connected_processes(members, ownership.table(), ownership.num_processes)
    firsts = [next(iter(ownership.devices(p)), None) for p in range(ownership.num_processes)]
    devices = tuple("" if d is None else _group(call.op, members, d) for d in firsts)
    return NamedCollective(call.index, call.op, call.name, call.source, call.reason, partners, devices)


def _group(op: str, members: Sequence[Sequence[int]], device: int) -> str:
    mine = [g for g in members if device in g]
    if op == "collective-permute":
        return "pairs " + (", ".join(f"{s} to {t}" for s, t in mine) or "none")
    shown = [str(d) for d in (mine[0] if mine else ())]
    return "group " + ",".join(
        shown if len(shown) <= 16 else [*shown[:15], f"... ({count_text(len(shown), 'device')})"]
    )


@dataclass(frozen=True, slots=True)
class RankStatus:
    """What one process showed at a moment. ``state`` and the numbers behind it are those of a row of the control
    table, ``note`` what it exchanges with others and ``place`` the user's line that does, ``met`` by rank how many
    exchanges it has begun with each, ``waited`` nanoseconds since ``state`` was entered; ``recent`` has (index,
    phase, ms it took or None) of its last collectives, of which it had begun ``begun`` in this program."""

    peer: Peer
    process: str
    state: int = UNKNOWN
    program: int = 0
    channel: int = 0
    sequence: int = 0
    index: int = 0
    phase: int = 0
    completed: int = 0
    waited: int = 0
    begun: int = 0
    step: int = 0
    polls: int = 0
    group: int = 0
    exchanges: int = 0
    note: str = ""
    place: str = ""
    met: Mapping[int, int] = field(default_factory=dict)
    recent: tuple[tuple[int, int, float | None], ...] = ()

    @property
    def rank(self) -> int:
        return self.peer.rank


def rank_statuses(table: ControlTable, peers: Sequence[Peer], now: int) -> list[RankStatus]:
    """Where the processes of this node are; ``peers`` by position in the table, ``now`` in monotonic nanoseconds."""
    found = []
    for position, peer in enumerate(peers):
        row = table.read(position)
        numbers: dict[str, Any] = {n: row[n] for n in _NUMBERS}
        begun, recent = _recent(table, position, row["recorder"])
        waited = max(0, now - row["since"])
        met = {other.rank: count for other, count in zip(peers, table.met(position), strict=True)}
        shown = RankStatus(peer, process_state(peer), **numbers)
        doing = table.exchange(position)
        shown = replace(shown, note=doing.what, place=doing.where, met=met)
        found.append(replace(shown, waited=waited, begun=begun, recent=recent))
    return found


def _recent(table: ControlTable, position: int, recorder: int) -> tuple[int, tuple[tuple[int, int, float | None], ...]]:
    if not recorder:
        return 0, ()
    memory = bytes(table.heaps[position][recorder : recorder + JOB_BYTES])
    events = events_of(memory)
    # The oldest may have been overwritten while they were copied.
    whole = events[1:] if len(events) == RING else events
    return made_by(memory), tuple((e.index, e.phase, (e.end - e.begin) / 1e6 if e.end else None) for e in whole)
