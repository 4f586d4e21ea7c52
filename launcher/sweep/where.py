"""Where candidates are assessed: in this process, in others of this machine, in an MPI job, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.hlo import plain
from shardc.hlo.errors import RunError, ShardcError, UnsupportedError
from shardc.launcher.affinity import processors_here
from shardc.launcher.executors.open_executor import open_executor
from shardc.launcher.problems import from_problem, to_problem
from shardc.launcher.sweep.assess import Settings, assess
from shardc.launcher.sweep.given import Given
from shardc.launcher.sweep.result import SweepResult
from shardc.launcher.sweep.surroundings import Surroundings
from shardc.launcher.sweep.workers import Assessor, Done, Task, assessor_on

__all__ = ["Where", "run_on"]

#: Candidates that are worth a process of their own, which takes a second to start.
_PER_PROCESS = 4

#: A sweep, given what assesses its candidates.
_Sweep = Callable[[Assessor], SweepResult]


@dataclass(frozen=True, slots=True)
class Where:
    """``jobs`` processes (0: one per core), a ``dask`` scheduler's address, or the ranks of this ``mpi`` job."""

    jobs: int = 0
    dask: str = ""
    mpi: bool = False

    @property
    def elsewhere(self) -> bool:
        """Perhaps on other computers?"""
        return bool(self.dask) or self.mpi


def run_on(
    where: Where, programs: Sequence[Given], settings: Settings, work: int, portable: bool, sweep: _Sweep
) -> SweepResult:
    """``sweep`` with workers for ``work`` candidates, or in this process where there is little to do or they are not
    ``portable``, which is an `UnsupportedError` for workers elsewhere."""
    if where.elsewhere and not portable:
        what = "programs with custom calls of their own, or that StableHLO has no words for, cannot leave this process"
        raise UnsupportedError(what, fix="leave out --dask, or the MPI launcher; annotate with text or P(...)")
    wanted = min(where.jobs or len(processors_here()), max(1, work // _PER_PROCESS))
    if not where.elsewhere and (wanted == 1 or not portable):
        return sweep(_here(programs))
    surroundings = Surroundings.of(settings.machine, programs[0].program.config, elsewhere=where.elsewhere)
    if where.mpi:
        return _with_ranks(surroundings, sweep)
    with open_executor(wanted, where.dask, mpi=False) as workers:
        assert workers is not None
        return sweep(assessor_on(workers, surroundings))


def _here(programs: Sequence[Given]) -> Assessor:
    def assess_here(tasks: Sequence[Task], done: Done) -> None:
        for number, task in enumerate(tasks):
            done(number, assess(programs[task.candidate.source].program, task.candidate, task.settings))

    return assess_here


def _with_ranks(surroundings: Surroundings, sweep: _Sweep) -> SweepResult:
    """All ranks together: what rank 0 finds, or raises, the others do too, so that none waits for it."""
    from shardc.launcher.executors.on_mpi import share

    found: SweepResult | BaseException | None = None
    with open_executor(mpi=True) as workers:
        if workers is not None:
            try:
                found = sweep(assessor_on(workers, surroundings))
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
