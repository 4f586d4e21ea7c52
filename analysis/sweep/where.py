"""Where candidates are assessed: in this process, in others of this machine, in an MPI job, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.analysis.sweep.assess import assess
from shardc.analysis.sweep.inputs import SweepProgram
from shardc.analysis.sweep.plan import SweepPlan
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.result_cache import OutcomeCache
from shardc.analysis.sweep.search_rounds import Progress
from shardc.analysis.sweep.settings import WorkerSettings
from shardc.analysis.sweep.workers import Assessment, Assessor, Done, assessor_on
from shardc.hlo.codec import plain
from shardc.hlo.errors import RunError, ShardcError, UnsupportedError
from shardc.launcher.executors.open_executor import Workers, open_executor
from shardc.launcher.executors.problems import from_problem, to_problem
from shardc.launcher.jobs.affinity import processors_here
from shardc.partitioner.program import SourceProgram

__all__ = ["Where", "assessor_here", "run_on"]


@dataclass(frozen=True, slots=True)
class Where:
    """``jobs`` processes (0: one per core), a ``dask`` scheduler's address, or the ranks of this ``mpi`` job."""

    jobs: int = 0
    dask: str = ""
    mpi: bool = False

    @property
    def off_host(self) -> bool:
        """Whether workers may run on other computers."""
        return bool(self.dask) or self.mpi


def run_on(where: Where, programs: Sequence[SweepProgram], planned: SweepPlan, progress: Progress) -> SweepResult:
    """The sweep that is ``planned`` with workers, or in this process where there is little to do or its candidates
    cannot leave it, which is an `UnsupportedError` for workers on other hosts."""
    portable = planned.has_text_specs and all(p.source is not None for p in programs)
    if where.off_host and not portable:
        what = "programs with custom calls, or with operations that StableHLO lacks, cannot be sent to another process"
        raise UnsupportedError(what, fix="omit --dask or the MPI launcher, or annotate with text or P(...)")
    config, settings = programs[0].program.config, planned.settings
    kept = OutcomeCache(config, settings.machine)
    wanted = planned.workers(where.jobs or len(processors_here()))
    if not where.off_host and (wanted == 1 or not portable):
        return planned.find(assessor_here([p.program for p in programs]), kept, progress)
    worker_settings = WorkerSettings.of(settings.machine, config, off_host=where.off_host)

    def sweep(workers: Workers) -> SweepResult:
        return planned.find(assessor_on(workers, worker_settings, [p.source for p in programs]), kept, progress)

    if where.mpi:
        return _with_ranks(sweep)
    with open_executor(wanted, where.dask, mpi=False) as workers:
        assert workers is not None
        return sweep(workers)


def assessor_here(programs: Sequence[SourceProgram]) -> Assessor:
    """Assesses candidates of ``programs`` in this process, one after the other."""

    def assess_here(tasks: Sequence[Assessment], done: Done) -> None:
        for number, task in enumerate(tasks):
            done(number, assess(programs[task.candidate.source], task.candidate, task.settings))

    return assess_here


def _with_ranks(sweep: Callable[[Workers], SweepResult]) -> SweepResult:
    """All ranks together: what rank 0 finds, or raises, the others do too, so that none waits for it."""
    from shardc.launcher.executors.on_mpi import share

    found: SweepResult | BaseException | None = None
    with open_executor(mpi=True) as workers:
        if workers is not None:
            try:
                found = sweep(workers)
            except BaseException as e:
                found = e
    told = share(None if found is None else _told(found))
    if isinstance(found, BaseException):
        raise found
    if found is None and told["interrupted"]:
        raise KeyboardInterrupt
    if found is None and told["problem"] is not None:
        raise from_problem(told["problem"])
    return found or plain.from_plain(SweepResult, told["result"])


def _told(found: SweepResult | BaseException) -> dict[str, Any]:
    """What rank 0 tells the others."""
    told: dict[str, Any] = {"interrupted": isinstance(found, KeyboardInterrupt), "problem": None, "result": None}
    if isinstance(found, SweepResult):
        told["result"] = plain.to_plain(found)
    else:
        told["problem"] = to_problem(found if isinstance(found, ShardcError) else RunError("rank 0 failed"))
    return told
