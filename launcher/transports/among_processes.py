"""What connects the processes of a job: MPI, shared memory, or a store of keys and values."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from shardc.collectives.call.transport import Transport
from shardc.collectives.mpi.transport import MpiTransport, Nodes
from shardc.collectives.shared_memory.heap import NodeHeaps, open_heaps
from shardc.collectives.shared_memory.key_values import KeyValueMessages, KeyValueStore
from shardc.collectives.shared_memory.node import ComputeNode, shared_code
from shardc.collectives.shared_memory.transport import SharedTransport
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.jobs.affinity import local_processors, processors_here, threads_for
from shardc.launcher.jobs.mpi_environment import start_mpi
from shardc.native.llvm.target import Target

__all__ = ["key_value_transport", "mpi_transport"]

#: Seconds that a wait polls before it sleeps: when every local rank has a core, and when ranks share cores.
_SPIN, _SHORT_SPIN = 0.005, 0.0002
#: Nanoseconds that a wait for ranks of the same node watches memory, likewise.
_WATCH, _SHORT_WATCH = 100_000, 20_000

log = logging.getLogger("shardc")

#: Keeps transports' code: its IR, the processor, and what makes the object.
KeepCode = Callable[[str, Target, Callable[[], bytes]], bytes]


def mpi_transport(config: Config, keep: KeepCode) -> Transport:
    """Of this process's MPI job, the same whenever it is asked for; all ranks call the first together."""
    return _connected(_Settings(config.timeout, config.shared_memory, config.transfer_thread, keep))


def key_value_transport(
    config: Config, keep: KeepCode, store: KeyValueStore, index: int, count: int
) -> tuple[Transport, int]:
    """For process ``index`` of ``count`` on one machine that only ``store`` connects, and the threads it may use.

    Raises `EnvironmentProblem` where they cannot share memory, such as on several machines. All call this together.
    """
    messages = KeyValueMessages(store, index, count, config.timeout)
    local = messages.exchange_objects(processors_here())
    heaps = open_heaps(messages.exchange_objects, count)
    if isinstance(heaps, str):
        raise EnvironmentProblem(
            f"the processes were started without MPI and do not share memory: {heaps}",
            fix="start them with `shardc mpiexec -n N python ...`, or with another launcher of the machine's MPI",
        )
    helper = _has_helper(config.transfer_thread, local)
    node = _compute_node(heaps, tuple(range(count)), messages, local, helper, keep)
    messages.watched = True
    return SharedTransport(messages, node), config.num_threads or threads_for(local[index], local)


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a job's transport depends on; where its code is kept makes no difference to it."""

    timeout: float
    shared_memory: bool
    transfer_thread: bool | None
    keep: KeepCode = field(compare=False)


@cache
def _connected(settings: _Settings) -> Transport:
    world = start_mpi().COMM_WORLD
    local = local_processors()
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
    messages.watched = alone
    return SharedTransport(messages, node) if alone else make(world, nodes=Nodes(by_rank, node))


def _has_helper(wanted: bool | None, local: Sequence[frozenset[int]]) -> bool:
    """Whether each process of the node has a thread for transfers."""
    return len(frozenset().union(*local)) >= 2 * len(local) if wanted is None else wanted


def _compute_node(
    heaps: NodeHeaps,
    ranks: tuple[int, ...],
    messages: Transport,
    local: Sequence[frozenset[int]],
    helper: bool,
    keep: KeepCode,
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
