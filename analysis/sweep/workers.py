"""Candidates on workers: processes of this machine, ranks of an MPI job, or a Dask cluster.

A candidate goes to its worker as plain data and the program's bytes, its outcome comes back as plain data: nothing of
the caller's is imported there, so a script needs no guard for its main part, and no path is opened. What the machine's
description and measured times are is sent as their text.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from shardc.analysis.sweep.assess import Outcome, SweepCandidate, SweepSettings, assess
from shardc.analysis.sweep.settings import WorkerSettings
from shardc.frontends.load import load_program
from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.ir.mesh import Mesh
from shardc.launcher.executors.frames import read_frame, to_bytes
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import Workers
from shardc.launcher.executors.tasks import Progress
from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
from shardc.partitioner.program import SourceProgram
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = ["Assessment", "Assessor", "Done", "ProgramSource", "assess_task", "assessor_on", "over_a_mesh", "read_again"]

#: A candidate takes as long as it takes; its outcome is small.
_LIMITS = TaskLimits(seconds=7 * 24 * 3600.0, answer_bytes=1 << 20)
#: Seconds between two looks at signals.
_LOOK = 0.2


@dataclass(frozen=True)
class ProgramSource:
    """The content of a program's file, which errors call ``name``, and the mesh that it is read over, if any."""

    data: bytes
    name: str
    mesh: tuple[tuple[str, int], ...] = ()

    @cached_property
    def digest(self) -> str:
        """Of the content and the mesh."""
        return hashlib.sha256(self.data + repr(self.mesh).encode()).hexdigest()

    def read(self) -> SourceProgram:
        return over_a_mesh(load_program(self.data, self.name), Mesh(dict(self.mesh)) if self.mesh else None)


def over_a_mesh(program: SourceProgram, mesh: Mesh | None) -> SourceProgram:
    """The program over ``mesh``; without one, a program whose shardings name no axes over the mesh that they tell."""
    if mesh is not None:
        return program.annotate(mesh=mesh)
    if program.mesh is not None or program.num_devices == 1 or is_partitioned(program.module):
        return program
    return replace(program, module=convert_to_axes(program.module), content="")


@dataclass(frozen=True)
class Assessment:
    """A candidate of the program whose `ProgramSource` has that ``digest`` (empty: it cannot leave its process)."""

    digest: str
    candidate: SweepCandidate
    settings: SweepSettings


#: Hears of each task that is done, by its number, and of what came of it: why, where its worker failed.
Done = Callable[[int, Outcome | RunError], None]

#: Assesses tasks until all are done.
Assessor = Callable[[Sequence[Assessment], Done], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a worker is asked, beside the program's bytes."""

    name: str
    mesh: tuple[tuple[str, int], ...]
    candidate: SweepCandidate
    settings: SweepSettings
    worker_settings: WorkerSettings


def assessor_on(workers: Workers, worker_settings: WorkerSettings, sources: Sequence[ProgramSource | None]) -> Assessor:
    """Assesses candidates of the programs in ``sources`` on ``workers``; no more tasks wait there than keep them
    busy."""

    def submit(task: Assessment) -> Future[bytes]:
        source = sources[task.candidate.source]
        assert source is not None
        asked = _Asked(source.name, source.mesh, task.candidate, task.settings, worker_settings)
        payload = b"".join(to_bytes(plain.to_plain(asked), source.data))
        return workers.submit("assess", payload, _LIMITS).future

    def run(tasks: Sequence[Assessment], done: Done) -> None:
        waiting, going = list(enumerate(tasks))[::-1], dict[Future[bytes], int]()
        while waiting or going:
            while waiting and len(going) < 2 * workers.count:
                number, task = waiting.pop()
                going[submit(task)] = number
            for future in wait(going, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                done(going.pop(future), _outcome(future))

    return run


def _outcome(future: Future[bytes]) -> Outcome | RunError:
    try:
        return plain.from_json(Outcome, future.result())
    except RunError as e:
        return e


def assess_task(payload: bytes, progress: Progress) -> bytes:
    """The task ``assess`` of `shardc.launcher.executors.tasks`: an `Outcome` as JSON."""
    frame = read_frame(io.BytesIO(payload))
    if frame is None:
        raise InputError("the data of a candidate are truncated")
    asked: _Asked = plain.from_plain(_Asked, frame.header, "candidate")
    program = read_again(ProgramSource(frame.body, asked.name, asked.mesh))
    machine, config = asked.worker_settings.here(Path.cwd())
    settings = replace(asked.settings, machine=machine)
    return plain.to_json(assess(replace(program, config=config), asked.candidate, settings)).encode()


@lru_cache(maxsize=1)
def read_again(source: ProgramSource) -> SourceProgram:
    """`ProgramSource.read`, for processes that assess candidates: the next one is most often the same program's."""
    return source.read()
