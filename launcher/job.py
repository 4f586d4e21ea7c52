"""The job that this process is part of: alone with virtual devices, or one rank of an MPI job."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from shardc.collectives.local import LocalTransport
from shardc.collectives.mpi import MpiTransport
from shardc.collectives.transport import Transport
from shardc.compiler.cache import kept_object
from shardc.hlo.config import Config
from shardc.launcher.failures import install_abort_hook
from shardc.launcher.mpi_environment import detect_launcher, start_mpi
from shardc.native.target import Target

__all__ = ["job_transport", "process_count", "process_index", "threads_per_process"]

#: Seconds that a wait polls before it sleeps: when every local rank has a core, and when ranks share cores.
_SPIN, _SHORT_SPIN = 0.005, 0.0002


def job_transport(config: Config) -> Transport:
    """MPI when a launcher started this process, virtual devices otherwise.

    Starts MPI at the first call in a job; raises `EnvironmentProblem` when launcher and library do not fit.
    """
    launcher = detect_launcher()
    if launcher is None:
        return LocalTransport(_Kept(config))
    _end_together(launcher.rank)
    return _mpi_transport(config.timeout)


def process_index() -> int:
    """The rank of this process in its MPI job, 0 without one."""
    return job_transport(Config.from_environment()).process_index


def process_count() -> int:
    """The number of processes of the MPI job, 1 without one."""
    return job_transport(Config.from_environment()).process_count


def threads_per_process(config: Config) -> int:
    """Threads that one process may use: the machine's cores shared among the ranks on it."""
    if config.num_threads:
        return config.num_threads
    if detect_launcher() is None or _cores() == 1:
        return _cores()
    return max(1, _cores() // _local_ranks())


def _cores() -> int:
    """Cores that this process may run on; a launcher that binds ranks gives each its own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Kept:
    """Keeps transports' code in the cache on disk."""

    config: Config

    def __call__(self, text: str, target: Target, make: Callable[[], bytes]) -> bytes:
        return kept_object(text, target, self.config, make)


@cache
def _end_together(rank: int) -> None:
    install_abort_hook(rank)


@cache
def _mpi_transport(timeout: float) -> MpiTransport:
    mpi = start_mpi()
    spin = _SPIN if _cores() == 1 or _local_ranks() <= _cores() else _SHORT_SPIN
    return MpiTransport(mpi.COMM_WORLD, timeout=timeout, spin=spin)


@cache
def _local_ranks() -> int:
    mpi = start_mpi()
    node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    size = int(node.Get_size())
    node.Free()
    return size
