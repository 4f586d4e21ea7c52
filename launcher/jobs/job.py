"""The job that this process is part of: alone with virtual devices, or one rank of an MPI job."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

from shardc.collectives.call.transport import Transport
from shardc.collectives.in_process.transport import LocalTransport
from shardc.collectives.mpi.transport import MpiTransport, Nodes
from shardc.collectives.shared_memory.heap import open_heaps
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.collectives.shared_memory.transport import SharedTransport
from shardc.compiler.cache.cache import fetch_object
from shardc.hlo.config import Config
from shardc.launcher.jobs.accelerators import keep_jax_on_cpu
from shardc.launcher.jobs.affinity import processors_here, threads_for
from shardc.launcher.jobs.failures import install_abort_hook
from shardc.launcher.jobs.mpi_environment import detect_launcher, start_mpi
from shardc.launcher.jobs.shared_files import forget_shared_files
from shardc.native.llvm.target import Target

__all__ = ["job_transport", "process_count", "process_index", "threads_per_process"]

#: Seconds that a wait polls before it sleeps: when every local rank has a core, and when ranks share cores.
_SPIN, _SHORT_SPIN = 0.005, 0.0002
#: Nanoseconds that a wait for ranks of the same node watches memory, likewise.
_WATCH, _SHORT_WATCH = 100_000, 20_000

log = logging.getLogger("shardc")


def job_transport(config: Config) -> Transport:
    """MPI when a launcher started this process, virtual devices otherwise.

    Starts MPI at the first call in a job; raises `EnvironmentProblem` when launcher and library do not fit.
    """
    launcher = detect_launcher()
    if launcher is None:
        return LocalTransport(_CodeCache(config))
    _end_together(launcher.rank)
    return _mpi_transport(_Settings(config.timeout, config.shared_memory, config.transfer_thread, _CodeCache(config)))


def process_index() -> int:
    """The rank of this process in its MPI job, 0 without one."""
    return _this_job().process_index


def process_count() -> int:
    """The number of processes of the MPI job, 1 without one."""
    return _this_job().process_count


@cache
def _this_job() -> Transport:
    return job_transport(Config.from_environment())


def threads_per_process(config: Config) -> int:
    """Threads that one process may use: its processors, those shared with other ranks of the node divided."""
    if config.num_threads:
        return config.num_threads
    mine = processors_here()
    if detect_launcher() is None or len(mine) == 1:
        return len(mine)
    return threads_for(mine, _local_processors())


@dataclass(frozen=True, slots=True)
class _CodeCache:
    """Keeps transports' code in the cache on disk."""

    config: Config

    def __call__(self, text: str, target: Target, make: Callable[[], bytes]) -> bytes:
        return fetch_object(text, target, self.config, make)


@cache
def _end_together(rank: int) -> None:
    install_abort_hook(rank)
    keep_jax_on_cpu()


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a job's transport depends on; where its code is kept makes no difference to it."""

    timeout: float
    shared_memory: bool
    transfer_thread: bool | None
    keep: _CodeCache = field(compare=False)


@cache
def _mpi_transport(settings: _Settings) -> Transport:
    world = start_mpi().COMM_WORLD
    local = _local_processors()
    cores = len(frozenset().union(*local))
    spin = _SPIN if len(local) <= cores else _SHORT_SPIN
    make = partial(MpiTransport, timeout=settings.timeout, spin=spin, keep=settings.keep)
    wanted = settings.transfer_thread
    helper = cores >= 2 * len(local) if wanted is None else wanted
    everybody = make(world).exchange_objects((_first_of_node(), socket.gethostname(), helper))
    by_rank = tuple(first for first, _, _ in everybody)
    make = partial(make, hosts=[host for _, host, _ in everybody], helper=all(h for _, _, h in everybody))
    messages = make(world)
    if not settings.shared_memory or len(set(by_rank)) == len(by_rank):
        return messages
    alone = len(set(by_rank)) == 1
    ranks = tuple(r for r, node in enumerate(by_rank) if node == by_rank[world.Get_rank()])
    exchange = (messages if alone else make(world.Split(by_rank[world.Get_rank()]))).exchange_objects
    heaps = open_heaps(exchange, len(ranks))
    problems = [p for p in messages.exchange_objects(heaps if isinstance(heaps, str) else "") if p]
    if isinstance(heaps, str) or problems:
        if world.Get_rank() == 0:
            log.info("ranks send messages within the node: %s", problems[0])
        return messages
    node = ComputeNode(
        heaps,
        ranks,
        exchange,
        shared_code(None, settings.keep),
        spin=_WATCH if len(local) <= cores else _SHORT_WATCH,
        cores=cores,
        helper=helper,
    )
    return SharedTransport(messages, node) if alone else make(world, nodes=Nodes(by_rank, node))


@cache
def _first_of_node() -> int:
    """The first rank of this node."""
    mpi = start_mpi()
    node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    first = int(node.bcast(mpi.COMM_WORLD.Get_rank()))
    node.Free()
    return first


@cache
def _local_processors() -> tuple[frozenset[int], ...]:
    """Where each rank of this node may run."""
    mpi = start_mpi()
    node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
    local = tuple(node.allgather(processors_here()))
    if node.Get_rank() == 0:
        forget_shared_files()
    node.Free()
    return local
