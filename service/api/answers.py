"""The answers of the HTTP interface, as classes: its description shows them, and `shardc.service.client` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from shardc.service.jobs import Artifact, Job, StoreEntry

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

#: As `shardc.frontends.load.content_kind` tells them.
ProgramKind = Literal["hlo", "mlir", "bytecode", "exported"]

#: Answers have all fields, also those with a default.
_WHOLE = ConfigDict(json_schema_serialization_defaults_required=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error (RFC 9457). ``error`` is its class in `shardc`, ``exit_code`` the exit code of the command line;
    ``missing`` are the SHA-256 of programs that have to be uploaded first, ``limit`` the largest accepted size in
    bytes."""

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
class ArtifactAnswer(Artifact):
    """A file of an entry, and where it is."""

    href: str


@dataclass(frozen=True, slots=True)
class EntryAnswer(StoreEntry):
    """The manifest of what one order made. ``signature`` is over ``key``, ``artifacts`` (without ``href``) and
    ``facts``."""

    __pydantic_config__: ClassVar[ConfigDict] = _WHOLE
    artifacts: Sequence[ArtifactAnswer]  # type: ignore[assignment]  # JSON's arrays are not tuples


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer(Job):
    """A job. Times are seconds since 1970, 0 for what has not happened; ``position`` in the queue counts from 1."""

    __pydantic_config__: ClassVar[ConfigDict] = _WHOLE
    problem: Problem | None  # type: ignore[assignment]  # with all its fields
    entry: EntryAnswer | None
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
    """Limits: bytes of a program and of an order, seconds and memory of a job (0: no limit), jobs in the queue."""

    upload_bytes: int
    order_bytes: int
    seconds: float
    memory_bytes: int
    queue: int


@dataclass(frozen=True, slots=True)
class InfoAnswer:
    """The server: version and build (a digest of the sources and of LLVM's binding), kind of workers (``processes``,
    ``mpi``, ``dask``) and their number, limits, and the default target processor."""

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


def entry_answer(entry: StoreEntry) -> dict[str, Any]:
    """An `EntryAnswer` as plain data."""
    folder = f"/v1/artifacts/{entry.key}"
    return {**_fields(entry), "artifacts": [{**_fields(a), "href": f"{folder}/{a.name}"} for a in entry.artifacts]}


def job_answer(job: Job) -> dict[str, Any]:
    """A `JobAnswer` as plain data."""
    entry = None if job.entry is None else entry_answer(job.entry)
    return {**_fields(job), "entry": entry, "href": f"/v1/jobs/{job.id}"}


def _fields(value: Any) -> dict[str, Any]:
    """By name; unlike `dataclasses.asdict` not of what is in them, which is plain already."""
    return {f.name: getattr(value, f.name) for f in fields(value)}
