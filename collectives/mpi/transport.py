"""The transport of MPI ranks: collectives by messages, between nodes or all ranks, with a bounded wait.

The caller starts MPI (`shardc.launcher.jobs.mpi_environment`) and passes ``MPI.COMM_WORLD``; this module never imports
``mpi4py.MPI`` itself.

Collectives run in native code that calls MPI by address (`shardc.collectives.mpi.message_executor`); Python's part are
the small exchanges around a program. The first message between two ranks in a collective starts with the number of the
exchange and the index of the collective: ranks that took different branches through the program are found out.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.control_table import ControlTable, group_number
from shardc.collectives.call.exchange import GATHER, WATCHED, RankExchange
from shardc.collectives.call.forked import refuse_forked
from shardc.collectives.call.membership import Ownership, check_call, connected_processes
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.stamp import SAME_CALLS
from shardc.collectives.engine.engine_calls import Keep, work_code
from shardc.collectives.engine.plan_messages import MessageLimits, Topology, plan_messages
from shardc.collectives.mpi.functions import mpi_functions
from shardc.collectives.mpi.message_executor import MessageChannel, MessageExecutor, PlannedCollective
from shardc.collectives.shared_memory.node import ComputeNode
from shardc.collectives.shared_memory.node_memory import NodeMeeting
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.units import count_text
from shardc.native.threads.pool import Pool, Row

__all__ = ["MpiTransport", "Nodes"]

T = TypeVar("T")

Bytes = NDArray[np.uint8]

#: Bytes that are gathered at a time.
_BLOCK = 1 << 28
#: Bytes per second that any network moves; slower than that, a wait may sleep.
_SLOWEST = 50e6
#: The tag of messages with which some ranks of a job meet.
_MEETING_TAG = 1
#: What each rank sends first in an exchange.
_ARRIVAL = np.dtype([("size", np.int64), ("what", "S256"), ("where", "S256")])
#: Seconds between two looks at what the others do, while one waits.
_LOOK = 0.5


@dataclass(frozen=True)
class Nodes:
    """The node of each rank, and this process's own with the memory that its ranks share."""

    by_rank: tuple[int, ...]
    mine: ComputeNode

    def mates(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Which of the job's ``ranks`` belong to this node, as positions in it."""
        return tuple(p for r in ranks for p, mine in enumerate(self.mine.ranks) if r == mine)

    def among(self, ranks: Sequence[int]) -> Nodes:
        """Those of some of the job's ranks, this process among them."""
        return Nodes(tuple(self.by_rank[r] for r in ranks), self.mine.among(ranks))


class MpiTransport:
    """A job of MPI ranks, each with a contiguous block of the program's devices.

    Ranks of a node meet in its memory, and messages go between nodes; without ``nodes`` each rank is one.

    ``timeout`` bounds the seconds spent waiting in one exchange (0: no bound); when it passes, `RunError` names
    rank, collective and source line. ``spin`` is how long a wait polls without sleeping: long when every local
    rank has a core of its own, short when ranks share cores. ``hosts`` are by rank of the job, for messages.
    ``helper``: a thread does what has been started, where that is more than short messages.
    With a ``job``, whose communicator is ``world``, only these ``ranks`` of it are connected, as soon as they have met.
    """

    def __init__(
        self,
        world: Any,
        *,
        timeout: float = 60.0,
        spin: float = 0.0,
        limits: MessageLimits | None = None,
        keep: Keep | None = None,
        nodes: Nodes | None = None,
        hosts: Sequence[str] = (),
        helper: bool = False,
        ranks: Sequence[int] = (),
        job: MpiTransport | None = None,
    ) -> None:
        self._mpi = sys.modules[type(world).__module__]
        self.job = job or self
        self.ranks = tuple(ranks) or tuple(range(world.Get_size()))
        self.process_index = self.ranks.index(int(world.Get_rank()))
        self.process_count = len(self.ranks)
        self._communicator = world.Dup() if job is None else None
        self._keep = keep
        self._nodes = nodes
        self._hosts = hosts
        self._helper = helper
        self._process = os.getpid()
        self._timeout = timeout
        self._spin = spin
        self._limits = limits or MessageLimits()
        self._channels: dict[tuple[int, ...], MessageChannel] = {}
        #: Whether a watchdog reports the missing rank when the time is up.
        self.watched = False
        self._wait_first: Callable[[], None] = lambda: None

    def among(self, ranks: Sequence[int]) -> MpiTransport:
        return MpiTransport(
            self._world,
            timeout=self._timeout,
            spin=self._spin,
            limits=self._limits,
            keep=self._keep,
            nodes=None if self._nodes is None else self._nodes.among(ranks),
            hosts=self._hosts,
            helper=self._helper,
            ranks=ranks,
            job=self,
        )

    @property
    def _world(self) -> Any:
        """The communicator of these processes alone."""
        return self._meet(1.0)

    def _meet(self, timeout_factor: float) -> Any:
        """Their communicator, made as soon as all of them say that they want it: MPI by itself would wait for them
        without end."""
        refuse_forked(self._process)
        if self._communicator is not None:
            return self._communicator
        world = self.job._world
        doing = RankExchange.here(f"the first exchange of ranks {', '.join(map(str, self.ranks))}")
        others = [r for r in self.ranks if r != self.ranks[self.process_index]]
        mine = np.array([group_number(self.ranks)], np.int64)
        theirs = np.empty((len(others), 1), np.int64)
        requests = [world.Irecv(theirs[k], r, _MEETING_TAG) for k, r in enumerate(others)]
        requests += [world.Isend(mine, r, _MEETING_TAG) for r in others]
        with self._show_exchange(doing, timeout_factor):
            self._wait(requests, doing, timeout_factor=timeout_factor)
        for rank, number in zip(others, theirs[:, 0].tolist(), strict=True):
            if number != mine[0]:
                raise RunError(
                    f"rank {rank} is in an exchange with other ranks, but rank {self.ranks[self.process_index]} is in "
                    f"{doing.what}",
                    fix=SAME_CALLS,
                )
        made = world.Create_group(world.Get_group().Incl(self.ranks), _MEETING_TAG)
        made.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._communicator = made
        return made

    @property
    def _rank(self) -> int:
        """This process's number in the job, for messages."""
        return self.ranks[self.process_index]

    @property
    def control(self) -> ControlTable | None:
        """Where the ranks of this node are; see `shardc.collectives.call.control_table`."""
        return None if self._nodes is None else self._nodes.mine.control

    @property
    def node_ranks(self) -> tuple[int, ...]:
        """The ranks of this node by position."""
        return () if self._nodes is None else self._nodes.mine.ranks

    def ownership(self, num_devices: int) -> Ownership:
        if num_devices < self.process_count:
            raise InputError(
                f"the program runs on {count_text(num_devices, 'device')}, but "
                f"the job has {count_text(self.process_count, 'rank')}",
                fix=f"start {count_text(num_devices, 'rank')} or fewer, or use a mesh of {self.process_count} or more "
                "devices: each rank needs one (mesh=, or that of an argument)",
            )
        return Ownership(num_devices, self.process_count)

    def connect(
        self,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
    ) -> MessageExecutor:
        functions = mpi_functions(self._mpi)
        owner = ownership.table()
        nodes = self._nodes
        by_rank = tuple(range(self.process_count)) if nodes is None else nodes.by_rank
        topology = Topology(tuple(owner.tolist()), by_rank)
        numbers: dict[tuple[int, ...], int] = {}
        planned = []
        for call in calls:
            members = check_call(call, ownership.num_devices)
            components = connected_processes(members, owner, self.process_count)
            channel = self._channel(components)
            number = numbers.setdefault(components, len(numbers))
            meeting = None if nodes is None else self._plan_meeting(call, number, channel, nodes, ownership)
            together = meeting is not None
            plan = plan_messages(call, members, topology, self.process_index, self._limits, together=together)
            planned.append(PlannedCollective(call, plan, channel, meeting, members, topology.owner))
        return MessageExecutor(
            planned,
            rows,
            pool,
            functions,
            work_code(None, self._keep),
            timeout=self._timeout,
            spin=self._spin,
            node=None if nodes is None else nodes.mine,
            ranks=self.ranks,
            hosts=self._hosts,
            helper=self._helper,
        )

    def _channel(self, components: tuple[int, ...]) -> MessageChannel:
        """A communicator for all collectives that connect the same ranks; all ranks come here in the same order."""
        if components not in self._channels:
            mine = components[self.process_index]
            ranks = tuple(self.ranks[p] for p, c in enumerate(components) if c == mine)
            communicator, handle = None, 0
            if len(set(components)) < len(components):
                communicator = self._world.Dup()
                communicator.Set_errhandler(self._mpi.ERRORS_RETURN)
                handle = self._mpi._handleof(communicator)
            self._channels[components] = MessageChannel(communicator, handle, ranks)
        return self._channels[components]

    def _plan_meeting(
        self, call: CollectiveCall, number: int, channel: MessageChannel, nodes: Nodes, ownership: Ownership
    ) -> NodeMeeting | None:
        """Whom of this node a collective of ``channel`` connects; None if that is this process alone."""
        mates = nodes.mates(channel.ranks)
        if len(mates) < 2:
            return None
        here = [self.ranks.index(r) for r in nodes.mine.ranks]
        return NodeMeeting(call, number, mates, tuple(ownership.devices(here[m]) for m in mates))

    def empty(self, nbytes: int) -> Bytes:
        return aligned_bytes(nbytes) if self._nodes is None else self._nodes.mine.heap.empty(nbytes)

    def wait_first(self, wait: Callable[[], None]) -> None:
        self._wait_first = wait

    def exchange_objects(self, value: T, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[T]:
        import pickle

        self._wait_first()
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        exchange = RankExchange.here(doing)
        with self._show_exchange(exchange, timeout_factor):
            sizes = self._arrive(exchange, data.size, timeout_factor)
            blocks = self._gather_bytes(data, sizes, exchange)
        ends = np.cumsum(sizes)
        return [pickle.loads(blocks[e - s : e].tobytes()) for s, e in zip(sizes, ends, strict=True)]

    def _show_exchange(self, exchange: RankExchange, timeout_factor: float) -> AbstractContextManager[None]:
        return nullcontext() if self.control is None else self.control.show_exchange(exchange, timeout_factor)

    def _arrive(self, exchange: RankExchange, size: int, timeout_factor: float = 1.0) -> list[int]:
        """The ``size`` of each rank, once all ranks have reached the same exchange."""
        world = self._meet(timeout_factor)
        mine = np.array([(size, exchange.what.encode(), exchange.where.encode())], _ARRIVAL)
        everybody = np.empty(self.process_count, _ARRIVAL)
        request = world.Iallgather(mine.view(np.uint8), everybody.view(np.uint8))
        # Nobody leaves an exchange before all have these sizes, so nobody can be in a step behind it.
        self._wait([request], exchange, timeout_factor=timeout_factor, alone=True)
        for rank, row in zip(self.ranks, everybody, strict=True):
            if row["what"] != mine[0]["what"]:
                theirs = RankExchange(*(bytes(row[name]).decode(errors="replace") for name in ("what", "where")))
                raise exchange.other(self._rank, theirs, rank)
        return [int(n) for n in everybody["size"]]

    def concatenate(self, block: Bytes, sizes: Sequence[int]) -> Bytes:
        """Every rank's bytes, one after another: a broadcast from each that has any.

        (Not Iallgatherv: the ring of Intel MPI 2021 never ends when some ranks have none.)
        """
        exchange = RankExchange.here(GATHER)
        self._wait_first()
        with self._show_exchange(exchange, 1.0):
            self._arrive(exchange, sizes[self.process_index])
            return self._gather_bytes(block, sizes, exchange)

    def _gather_bytes(self, block: Bytes, sizes: Sequence[int], doing: RankExchange) -> Bytes:
        out = np.empty(sum(sizes), np.uint8)
        ends = np.cumsum(sizes).tolist()
        me = self.process_index
        out[ends[me] - sizes[me] : ends[me]] = block[: sizes[me]]
        pieces = [
            (rank, out[at : min(at + _BLOCK, end)])
            for rank, (size, end) in enumerate(zip(sizes, ends, strict=True))
            for at in range(end - size, end, _BLOCK)
        ]
        while pieces:
            requests: list[Any] = []
            moved = 0
            while pieces and (not requests or moved + pieces[0][1].size <= _BLOCK):
                rank, piece = pieces.pop(0)
                requests.append(self._world.Ibcast(piece, rank))
                moved += piece.size
            self._wait(requests, doing, moved)
        return out

    def _wait(
        self,
        requests: list[Any],
        doing: RankExchange,
        moved: int = 0,
        timeout_factor: float = 1.0,
        *,
        alone: bool = False,
    ) -> None:
        """Wait until ``requests`` are done: poll, and sleep between polls when it takes long.

        While ``moved`` bytes are on their way both sides must keep polling: MPI moves them in small steps. ``alone``:
        no step of another rank may send anything meanwhile.
        """
        if not requests:
            return
        start = time.monotonic()
        limit, looked = self._timeout * timeout_factor, 0.0
        grace = WATCHED if self._nodes is not None or self.job.watched else 0.0
        busy = self._spin + moved / _SLOWEST
        try:
            while not requests[0].Testall(requests):
                waited = time.monotonic() - start
                if alone and waited > looked + _LOOK:
                    looked = waited
                    self._need_nobody_in_a_step(doing)
                if limit and waited > limit + grace:
                    raise doing.late(self._rank, limit)
                if waited < busy:
                    _let_others_run()
                else:
                    time.sleep(min(waited / 50, 1e-3))
        except RuntimeError as e:  # mpi4py's exceptions are of this kind
            raise doing.failed(self._rank, e) from None

    def _need_nobody_in_a_step(self, doing: RankExchange) -> None:
        """Raise `RunError` when another rank sends what only a step of this one would take: it began that step before
        the exchange that this rank is in."""
        status = self._mpi.Status()
        for channel in self._channels.values():
            if channel.communicator is not None and channel.communicator.Iprobe(status=status):
                raise RunError(
                    f"rank {self.ranks[status.Get_source()]} is in a step and has started its exchange "
                    f"{channel.counter.value + 1} with ranks {', '.join(map(str, channel.ranks))}; rank "
                    f"{self._rank} is outside of a step, in {doing.what}",
                    where=doing.where or None,
                    fix=SAME_CALLS,
                )


def _let_others_run() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
