"""Opens workers for tasks: children of this process, the ranks of the MPI job that it is in, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType

from shardc.hlo.errors import InputError
from shardc.launcher.executors.on_processes import on_processes
from shardc.launcher.executors.running import Running, Workers
from shardc.launcher.executors.tasks import TASKS
from shardc.launcher.jobs.affinity import processors_here
from shardc.launcher.jobs.mpi_environment import detect_launcher

__all__ = ["Running", "Workers", "open_executor"]


def open_executor(
    workers: int = 0,
    dask: str = "",
    *,
    mpi: bool | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    tasks: Mapping[str, str] = TASKS,
    prepare: Sequence[str] = (),
) -> AbstractContextManager[Workers | None]:
    """Workers for `Workers.submit`; they end with the block, and what they do then is stopped.

    ``workers`` processes of this machine (0: one per core); with ``dask`` those of the cluster with this scheduler's
    address; with ``mpi`` (None: when a launcher has started this process with others) the other ranks of this job.
    Wherever it is, a task runs in a child process with its `TaskLimits`, so that a crash ends nothing but the task.

    ``environment`` are variables for the children, ``prepare`` tasks (of the table ``tasks``) that will be asked for:
    children get ready for them at once.

    In an MPI job all ranks open it together. Rank 0 has the workers; on the others the block begins when that of rank
    0 is over, with None. Raises `EnvironmentProblem` without MPI, without ``distributed``, and for a scheduler that
    does not answer. Example::

        with open_executor(workers=2) as workers:
            if workers is not None:
                answer = workers.submit("order", payload, TaskLimits(seconds=60)).future.result()
    """
    if workers < 0:
        raise InputError(f"workers is {workers}", fix="give 0 (one per core) or more")
    if dask:
        from shardc.launcher.executors.on_dask import on_dask

        return on_dask(dask, environment, tasks)
    if detect_launcher() is not None if mpi is None else mpi:
        from shardc.launcher.executors.on_mpi import on_mpi

        return on_mpi(environment, tasks, prepare)
    return on_processes(workers or len(processors_here()), environment, tasks, prepare)
