"""What the interface answers with, as classes: its description shows them, and `shardc.launcher.remote` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shardc.launcher.service.jobs import Entry, Job, State

__all__ = [
    "ArtifactAnswer",
    "CpuAnswer",
    "EntryAnswer",
    "HealthAnswer",
    "InfoAnswer",
    "JobAnswer",
    "JobsAnswer",
    "KeyAnswer",
    "LevelAnswer",
    "LimitsAnswer",
    "MachineAnswer",
    "MachinesAnswer",
    "NamedCpu",
    "Problem",
    "ProgramAnswer",
    "TargetsAnswer",
    "entry_answer",
    "job_answer",
]

#: As `shardc.launcher.load.content_kind` tells them.
ProgramKind = Literal["hlo", "mlir", "bytecode", "exported"]


@dataclass(frozen=True, slots=True)
class Problem:
    """An error (RFC 9457). ``error`` is its class in `shardc`, ``exit_code`` what the command line ends with;
    ``missing`` are the SHA-256 of programs that have to be uploaded first, ``limit`` the bytes that are taken."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    what: str
    where: str | None
    fix: str | None
    exit_code: int
    location: Mapping[str, Any] | None = None
    missing: Sequence[str] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ProgramAnswer:
    """An uploaded program: its SHA-256, its size, and what it is."""

    program: str
    bytes: int
    kind: ProgramKind


@dataclass(frozen=True, slots=True)
class ArtifactAnswer:
    """A file of an entry, and where it is."""

    name: str
    bytes: int
    sha256: str
    media_type: str
    href: str


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """The manifest of what one order made. ``signature`` is over ``key``, ``artifacts`` (without ``href``) and
    ``facts``."""

    key: str
    artifacts: Sequence[ArtifactAnswer]
    facts: Mapping[str, Any]
    signature: str


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """A job. Times are seconds since 1970, 0 for what has not happened; ``position`` in the queue counts from 1."""

    id: str
    key: str
    kind: str
    name: str
    state: State
    created: float
    started: float
    finished: float
    progress: Mapping[str, Any]
    position: int
    problem: Problem | None
    entry: EntryAnswer | None
    cached: bool
    href: str


@dataclass(frozen=True, slots=True)
class JobsAnswer:
    """Newest first."""

    jobs: Sequence[JobAnswer]


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """Links of one kind, innermost first; bytes per second, seconds."""

    name: str
    kind: str
    size: int
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class MachineAnswer:
    """A described machine; ``device`` has its ``kind``, ``memory_bytes`` and the like."""

    name: str
    title: str
    device: Mapping[str, Any]
    levels: Sequence[LevelAnswer]


@dataclass(frozen=True, slots=True)
class MachinesAnswer:
    machines: Sequence[MachineAnswer]


@dataclass(frozen=True, slots=True)
class CpuAnswer:
    """An LLVM target."""

    triple: str
    cpu: str
    features: str


@dataclass(frozen=True, slots=True)
class NamedCpu:
    """A processor that code can be made for by name."""

    name: str
    cpu: CpuAnswer


@dataclass(frozen=True, slots=True)
class TargetsAnswer:
    """What programs can be compiled for: ``targets`` of an order, and processors for its ``cpu``."""

    targets: Sequence[str]
    cpus: Sequence[NamedCpu]


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The key that signatures are checked with, in hexadecimal."""

    key: str


@dataclass(frozen=True, slots=True)
class LimitsAnswer:
    """Bytes of a program and of an order, seconds and bytes of memory of a job (0: no bound), jobs that may wait."""

    upload_bytes: int
    order_bytes: int
    seconds: float
    memory_bytes: int
    queue: int


@dataclass(frozen=True, slots=True)
class InfoAnswer:
    """What serves: version and build (a digest of the sources and of LLVM's binding), who does the work
    (``processes``, ``mpi``, ``dask``) and how many at a time, limits, and the processor that is compiled for where an
    order names none."""

    version: str
    build: str
    executor: str
    workers: int
    limits: LimitsAnswer
    cpu: CpuAnswer
    draining: bool


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    status: Literal["ok", "draining"]


def entry_answer(entry: Entry) -> dict[str, Any]:
    """An `EntryAnswer` as plain data."""
    folder = f"/v1/artifacts/{entry.key}"
    return {
        "key": entry.key,
        "artifacts": [
            {
                "name": a.name,
                "bytes": a.bytes,
                "sha256": a.sha256,
                "media_type": a.media_type,
                "href": f"{folder}/{a.name}",
            }
            for a in entry.artifacts
        ],
        "facts": dict(entry.facts),
        "signature": entry.signature,
    }


def job_answer(job: Job) -> dict[str, Any]:
    """A `JobAnswer` as plain data."""
    return {
        "id": job.id,
        "key": job.key,
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "finished": job.finished,
        "progress": dict(job.progress),
        "position": job.position,
        "problem": None if job.problem is None else dict(job.problem),
        "entry": None if job.entry is None else entry_answer(job.entry),
        "cached": job.cached,
        "href": f"/v1/jobs/{job.id}",
    }
