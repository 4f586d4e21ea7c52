"""The job that this process is part of: alone with virtual devices, or one rank of several."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from shardc.collectives.call.transport import Transport
from shardc.collectives.in_process.transport import LocalTransport
from shardc.collectives.mpi.transport import MpiTransport, Nodes
from shardc.collectives.shared_memory.heap import NodeHeaps, open_heaps
from shardc.collectives.shared_memory.key_values import KeyValueMessages, KeyValueStore
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.collectives.shared_memory.transport import SharedTransport
from shardc.compiler.cache.cache import fetch_object
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.jobs.accelerators import keep_jax_on_cpu
from shardc.launcher.jobs.affinity import processors_here, threads_for
from shardc.launcher.jobs.failures import install_abort_hook
from shardc.launcher.jobs.mpi_environment import detect_launcher, start_mpi
from shardc.launcher.jobs.shared_files import forget_shared_files
from shardc.native.llvm.target import Target

__all__ = [
    "job_transport", "key_value_transport", "local_transport", "process_count", "process_index", "threads_per_process",
]  # fmt: skip

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
        return local_transport(config)
    _end_together(launcher.rank)
    return _mpi_transport(_Settings(config.timeout, config.shared_memory, config.transfer_thread, _CodeCache(config)))


def local_transport(config: Config) -> Transport:
    """For programs on devices of this process alone."""
    return LocalTransport(_CodeCache(config))


def key_value_transport(config: Config, store: KeyValueStore, index: int, count: int) -> tuple[Transport, int]:
    """For process ``index`` of ``count`` on one machine that only ``store`` connects, and the threads it may use.

    Raises `EnvironmentProblem` where they cannot share memory, such as on several machines. All call this together.
    """
    messages = KeyValueMessages(store, index, count, config.timeout)
    local = messages.exchange_objects(processors_here())
    heaps = open_heaps(messages.exchange_objects, count)
    if isinstance(heaps, str):
        raise EnvironmentProblem(
            f"the processes were started without MPI and share no memory: {heaps}",
            fix="start them with `shardc mpiexec -n N python ...`, or with another launcher of the machine's MPI",
        )
    helper = _has_helper(config.transfer_thread, local)
    node = _compute_node(heaps, tuple(range(count)), messages, local, helper, _CodeCache(config))
    return SharedTransport(messages, node), config.num_threads or threads_for(local[index], local)


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
    helper = _has_helper(settings.transfer_thread, local)
    everybody = make(world).exchange_objects((_first_of_node(), socket.gethostname(), helper))
    by_rank = tuple(first for first, _, _ in everybody)
    make = partial(make, hosts=[host for _, host, _ in everybody], helper=all(h for _, _, h in everybody))
    messages = make(world)
    if not settings.shared_memory or len(set(by_rank)) == len(by_rank):
        return messages
    alone = len(set(by_rank)) == 1
    ranks = tuple(r for r, node in enumerate(by_rank) if node == by_rank[world.Get_rank()])
    near = messages if alone else make(world.Split(by_rank[world.Get_rank()]))
    heaps = open_heaps(near.exchange_objects, len(ranks))
    problems = [p for p in messages.exchange_objects(heaps if isinstance(heaps, str) else "") if p]
    if isinstance(heaps, str) or problems:
        if world.Get_rank() == 0:
            log.info("ranks send messages within the node: %s", problems[0])
        return messages
    node = _compute_node(heaps, ranks, near, local, helper, settings.keep)
    return SharedTransport(messages, node) if alone else make(world, nodes=Nodes(by_rank, node))


def _has_helper(wanted: bool | None, local: Sequence[frozenset[int]]) -> bool:
    """Does each process of the node have a thread for transfers?"""
    return len(frozenset().union(*local)) >= 2 * len(local) if wanted is None else wanted


def _compute_node(
    heaps: NodeHeaps,
    ranks: tuple[int, ...],
    messages: Transport,
    local: Sequence[frozenset[int]],
    helper: bool,
    keep: _CodeCache,
) -> ComputeNode:
    """The processes ``ranks`` of this node, which run on the processors ``local``."""
    cores = len(frozenset().union(*local))
    spin = _WATCH if len(local) <= cores else _SHORT_WATCH
    return ComputeNode(heaps, ranks, messages, shared_code(None, keep), spin=spin, cores=cores, helper=helper)


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
