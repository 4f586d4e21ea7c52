"""Jobs: one client's request for an order's result, its state and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["MANIFEST", "Artifact", "Job", "State", "StoreEntry"]

#: The header of a file's answer that has its entry: JSON in base64. Very large ones are left out.
MANIFEST = "Shardc-Manifest"

State = Literal["queued", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of an entry: ``sha256`` in hexadecimal.

    >>> job = service.wait(service.submit({"kind": "partition", "program": digest}))
    >>> [artifact.name for artifact in job.entry.artifacts]
    ['partitioned.hlo', 'report.json', 'stages.json']
    """

    name: str
    bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """What the store has under ``key``: the manifest. ``facts`` are plain data (kind, program's name, seconds by
    stage, version of shardc); ``signature`` is over everything else (`shardc.service.store.signature`).

    >>> job.entry.key == job.key, job.entry.facts["kind"]
    (True, 'simulate')
    """

    key: str
    artifacts: tuple[Artifact, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """``id`` identifies the submission, ``key`` the order (`order_key`). Times are seconds of `time.time`; 0: not yet.

    ``progress`` is the worker's last message (``stage``, ``done``, ``of``); ``position`` in the queue counts from 1.
    ``problem`` is the error of a failed job (``error``, ``what``, ``where``, ``fix``), ``entry`` the result of a done
    one; otherwise they are None. ``cached``: the result existed already.

    >>> job = service.wait(service.submit({"kind": "simulate", "program": digest}))
    >>> job.state, job.problem["error"], job.entry
    ('failed', 'InputError', None)
    """

    id: str
    key: str
    kind: str
    name: str
    state: State
    created: float
    started: float = 0.0
    finished: float = 0.0
    progress: Mapping[str, Any] = field(default_factory=dict)
    position: int = 0
    problem: Mapping[str, Any] | None = None
    entry: StoreEntry | None = None
    cached: bool = False

    @property
    def over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")
