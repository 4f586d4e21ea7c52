"""A simulated step as plain data: what ran when, what it cost, what waited for what, and the memory in use.

Times are seconds, sizes bytes, operations counts, all of one device in one step: devices of one program do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline
from shardc.hlo.ir.groups import Pairs, ReplicaGroups

__all__ = ["LoopInfo", "PathStep", "SimulatedEvent", "SimulatedStep", "SimulatedWork", "Skipped"]

#: How many of the largest values at the peak `SimulatedStep.to_dict` names.
_LARGEST = 20


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """What one ``engine`` did from ``begin`` for ``seconds``: ``compute``, or a kind of links such as ``nvlink``.

    ``kind`` is ``kernel``, ``copy``, ``transfer`` (links carry a collective) or ``wait`` (compute waits for it);
    ``work`` indexes `SimulatedStep.work`; ``loops`` are the loops around it with their iterations, outermost first. A
    transfer was ``queued`` for so many seconds before it began.
    """

    engine: str
    kind: str
    work: int
    begin: float
    seconds: float
    loops: tuple[tuple[str, int], ...] = ()
    queued: float = 0.0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Iterations ``first`` to ``last`` of ``loop`` that went like the one before them: their events are not listed.

    ``loops`` are the loops around it, ``begin`` and ``seconds`` the time of all of them.
    """

    loop: str
    first: int
    last: int
    begin: float
    seconds: float
    loops: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """A leaf step of the lowered program and its costs.

    ``kind`` is ``kernel``, ``copy``, ``collective`` or ``move`` (between host and device); ``holds`` lists what a fused
    kernel computes; ``count`` are the executions in a step and ``seconds`` those of one, alone. ``flops``, ``read``,
    ``written`` (bytes), ``limit`` (``compute``, ``memory``, ``launch`` or ``measured``) and ``efficiency`` (of the peak
    or the bandwidth that limits) are a kernel's, of one execution; ``axes`` to ``value`` a collective's, of one
    execution as well. ``payload_bytes`` are the local result's, ``wire_bytes`` what a device sends, ``link_bytes`` the
    same by level of links. ``exposed_seconds`` is the time that compute waited for it in all executions,
    ``hidden_seconds`` the time that overlapped with other work. ``loops`` are the names of the loops around it,
    outermost first. ``category`` is the group that people read profiles by, such as ``matrix products``
    (`category_of`).
    """

    kind: str
    name: str
    opcode: str
    op_name: str = ""
    source: str = ""
    holds: str = ""
    dtype: str = ""
    count: int = 0
    seconds: float = 0.0
    flops: int = 0
    read: int = 0
    written: int = 0
    limit: str = ""
    efficiency: float = 0.0
    axes: tuple[str, ...] = ()
    group_size: int = 0
    algorithm: str = ""
    payload_bytes: int = 0
    wire_bytes: int = 0
    link_bytes: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    value: str = ""
    exposed_seconds: float = 0.0
    hidden_seconds: float = 0.0
    loops: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class LoopInfo:
    """A loop of the program; ``trips`` are its iterations, 1 where they are not ``known``."""

    name: str
    op_name: str
    source: str
    trips: int
    known: bool


@dataclass(frozen=True, slots=True)
class PathStep:
    """A part of the critical path: ``count`` executions of ``work`` that the step's end waited for, ``seconds`` in all.

    ``kind`` as an event's, and ``overhead`` for what a device spends on starting and awaiting a collective; ``loops``
    are the names of the loops around it.
    """

    work: int
    kind: str
    seconds: float
    count: int
    loops: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulatedStep:
    """A step on ``machine``: ``step_seconds`` is ``compute_seconds + exposed_seconds + idle_seconds``.

    ``exposed_seconds`` is the time that compute waited for collectives. ``overlapped_seconds`` (a part of
    ``compute_seconds``) is the time that it computed while links were busy. ``idle_seconds`` is the overhead of
    starting and awaiting collectives.

    ``flops`` are all operations that a device executes, ``product_flops`` those of products of matrices and
    convolutions. ``model_flops`` are a device's share of the products in the whole program, without what
    rematerialisation computes again, redundant work or padding (Chowdhery et al., "PaLM", 2022, appendix B). ``mfu``
    and ``hfu`` are model and product ones per second as shares of ``peak_flops``, the peak of ``dtype``, the type that
    most products have.

    ``peak_bytes`` are of the device's memory, ``host_bytes`` of pinned memory on its host; moves between the two count
    as communication.

    ``mapping`` says where mesh axes lie on the machine. ``link_bytes`` are those that one device sends, by level.
    Of loops, ``events`` has the iterations until they repeat, ``skipped`` what was not listed. ``memory_curve`` are
    (seconds, bytes in use from then on). ``notes`` are what a reader should know about the figures.
    """

    program: str
    machine: str
    devices: int
    mesh: Mapping[str, int]
    mapping: Mapping[str, str]
    step_seconds: float
    compute_seconds: float
    exposed_seconds: float
    overlapped_seconds: float
    idle_seconds: float
    flops: int
    product_flops: int
    model_flops: int
    mfu: float
    hfu: float
    peak_flops: float
    dtype: str
    link_bytes: Mapping[str, float]
    peak_bytes: int
    capacity_bytes: int
    work: tuple[SimulatedWork, ...]
    events: tuple[SimulatedEvent, ...]
    skipped: tuple[Skipped, ...]
    critical_path: tuple[PathStep, ...]
    memory: MemoryTimeline
    memory_curve: tuple[tuple[float, int], ...]
    loops: tuple[LoopInfo, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[ReplicaGroups | Pairs | None, ...] = field(default=(), repr=False)
    host_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the program fits into a device's memory."""
        return self.peak_bytes <= self.capacity_bytes

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON; of memory the curve, and the largest values at the peak.

        >>> "step_seconds" in partitioned.simulate("h100-dgx").to_dict()
        True
        """
        out = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("work", "events", "skipped", "critical_path", "loops", "memory", "groups")
        }
        at_peak = self.memory.at(self.memory.peak)[:_LARGEST]
        return {
            **out,
            "mesh": dict(self.mesh),
            "mapping": dict(self.mapping),
            "link_bytes": dict(self.link_bytes),
            "memory_curve": [list(point) for point in self.memory_curve],
            "notes": list(self.notes),
            "work": [_plain(w) for w in self.work],
            "events": [_plain(e) for e in self.events],
            "skipped": [_plain(s) for s in self.skipped],
            "loops": [_plain(row) for row in self.loops],
            "critical_path": [_plain(p) for p in self.critical_path],
            "largest_at_peak": [asdict(b) for b in at_peak],
        }


def _plain(row: Any) -> dict[str, Any]:
    """A row's fields, tuples as lists."""
    return {k: _listed(getattr(row, k)) for k in row.__dataclass_fields__}


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_listed(v) for v in value]
    return dict(value) if isinstance(value, Mapping) else value
