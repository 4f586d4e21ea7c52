"""The job that this process is part of: alone with virtual devices, or one rank of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from shardc.collectives.call.transport import Transport
from shardc.collectives.in_process.transport import LocalTransport
from shardc.compiler.cache.cache import fetch_object
from shardc.hlo.config import Config
from shardc.launcher.jobs.accelerators import keep_jax_on_cpu
from shardc.launcher.jobs.affinity import local_processors, processors_here, threads_for
from shardc.launcher.jobs.failures import install_abort_hook
from shardc.launcher.jobs.job_config import job_config
from shardc.launcher.jobs.mpi_environment import detect_launcher
from shardc.native.llvm.target import Target

__all__ = [
    "CodeCache", "job_transport", "local_transport", "process_count", "process_index", "threads_per_process",
]  # fmt: skip


def job_transport(config: Config) -> Transport:
    """MPI when a launcher started this process, virtual devices otherwise.

    Starts MPI at the first call in a job; raises `EnvironmentProblem` when launcher and library do not fit.
    """
    launcher = detect_launcher()
    if launcher is None:
        return local_transport(config)
    _end_together(launcher.rank)
    from shardc.launcher.transports.among_processes import (
        mpi_transport,  # with protocols that one process has no use for
    )

    transport = mpi_transport(config, CodeCache(config))
    if transport.process_count > 1:
        _watch(transport, config)
    return transport


@cache
def _watch(transport: Transport, config: Config) -> None:
    """From now on a process of the job that is missing is named, also where others wait for it before any step."""
    from shardc.compiler.load.step import step_drive
    from shardc.launcher.jobs.watchdog import start_watchdog

    start_watchdog(transport, config.timeout, step_drive(config), config.record_to)


def local_transport(config: Config) -> Transport:
    """For programs on devices of this process alone."""
    return LocalTransport(CodeCache(config))


def process_index() -> int:
    """The rank of this process in its MPI job; 0 without a job.

    >>> shardc.process_index()
    0
    """
    return _this_job().process_index


def process_count() -> int:
    """The number of processes of the MPI job; 1 without a job.

    >>> shardc.process_count()
    1
    """
    return _this_job().process_count


@cache
def _this_job() -> Transport:
    return job_transport(job_config())


def threads_per_process(config: Config) -> int:
    """Threads that one process may use: its processors, those shared with other ranks of the node divided."""
    if config.num_threads:
        return config.num_threads
    mine = processors_here()
    if detect_launcher() is None or len(mine) == 1:
        return len(mine)
    return threads_for(mine, local_processors())


@dataclass(frozen=True, slots=True)
class CodeCache:
    """Keeps transports' code in the cache on disk."""

    config: Config

    def __call__(self, text: str, target: Target, make: Callable[[], bytes]) -> bytes:
        return fetch_object(text, target, self.config, make)


@cache
def _end_together(rank: int) -> None:
    install_abort_hook(rank)
    keep_jax_on_cpu()
