"""MPI ranks, through mpi4py: communicators per set of replica groups, byte exchanges, a bounded wait.

Ranks that exchange data in a collective, directly or through others, share one communicator. It is created by
all ranks together before the first step, in program order, and kept for every collective over the same sets, so
that creation cannot deadlock. The caller starts MPI (`shardc.launcher.mpi_environment`) and passes
``MPI.COMM_WORLD``; this module never imports ``mpi4py.MPI`` itself.

Every message starts with the sequence number and index of its collective: ranks that took different ways through
the program are told apart from data.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import CollectiveCall
from shardc.collectives.engine import Engine, Limits, Piece
from shardc.collectives.membership import Ownership, check_call, connected_processes
from shardc.collectives.memory import DeviceMemory
from shardc.collectives.transport import Prepared
from shardc.hlo.errors import InputError, RunError

__all__ = ["MpiTransport"]

Bytes = NDArray[np.uint8]

_HEADER = struct.Struct("<QQ")


class _Channel:
    """A communicator, the world ranks in it by position, and how many exchanges it has done."""

    def __init__(self, communicator: Any, ranks: Sequence[int]) -> None:
        self.communicator = communicator
        self.position = {rank: i for i, rank in enumerate(ranks)}
        self.sequence = 0


class MpiTransport:
    """A job of MPI ranks, each with a contiguous block of the program's devices.

    ``timeout`` bounds the seconds spent waiting in one exchange (0: no bound); when it passes, `RunError` names
    rank, collective and source line. ``spin`` is how long a wait polls without sleeping: long when every local
    rank has a core of its own, short when ranks share cores.
    """

    def __init__(self, world: Any, *, timeout: float = 60.0, spin: float = 0.0, limits: Limits | None = None) -> None:
        self._world = world.Dup()
        self._timeout = timeout
        self._spin = spin
        self._limits = limits or Limits()
        self._channels: dict[tuple[int, ...], _Channel] = {}

    @property
    def process_index(self) -> int:
        return int(self._world.Get_rank())

    @property
    def process_count(self) -> int:
        return int(self._world.Get_size())

    def ownership(self, num_devices: int) -> Ownership:
        if num_devices < self.process_count:
            raise InputError(
                f"the program runs on {num_devices} devices, the job has {self.process_count} ranks",
                fix=f"start {num_devices} ranks or fewer",
            )
        return Ownership(num_devices, self.process_count)

    def prepare(self, calls: Sequence[CollectiveCall], num_devices: int) -> tuple[Prepared, ...]:
        ownership = self.ownership(num_devices)
        table = ownership.table()
        mine = frozenset(ownership.devices(self.process_index))
        prepared = []
        for call in calls:
            members = check_call(call, num_devices)
            channel = self._channel(connected_processes(members, table, self.process_count))
            engine = Engine(self.process_index, table.tolist(), partial(self._exchange, channel), self._limits)
            most = max((len({int(table[d]) for d in g}) for g in members), default=1)
            prepared.append(Prepared(call, tuple(g for g in members if not mine.isdisjoint(g)), engine, most))
        return tuple(prepared)

    def perform(self, prepared: Prepared, memories: Mapping[int, DeviceMemory]) -> None:
        prepared.engine.perform(prepared.call, prepared.members, memories, prepared.most_processes)

    def exchange_objects(self, value: Any, *, patience: float = 1.0) -> list[Any]:
        import pickle

        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.process_count, np.int64)
        request = self._world.Iallgather(np.array([data.size], np.int64), sizes)
        self._wait(request, self._late("the exchange of program hashes", self._timeout * patience), patience)
        blocks = self.concatenate(data, sizes.tolist())
        ends = np.cumsum(sizes)
        return [pickle.loads(blocks[e - s : e].tobytes()) for s, e in zip(sizes, ends, strict=True)]

    def concatenate(self, block: Bytes, sizes: Sequence[int]) -> Bytes:
        out = np.empty(sum(sizes), np.uint8)
        starts = np.cumsum([0, *sizes[:-1]])
        done = 0
        step = max(1, self._limits.chunk // self.process_count)
        while done < max(sizes):
            counts = [max(0, min(step, s - done)) for s in sizes]
            into = np.empty(sum(counts), np.uint8)
            part = block[done : done + counts[self.process_index]]
            request = self._world.Iallgatherv(part, [into, counts])
            self._wait(request, self._late("a gather", self._timeout))
            for start, count, end in zip(starts, counts, np.cumsum(counts), strict=True):
                out[start + done : start + done + count] = into[end - count : end]
            done += step
        return out

    def _channel(self, components: tuple[int, ...]) -> _Channel:
        """The communicator of my component; all ranks come here in the same order."""
        if components not in self._channels:
            me = self.process_index
            ranks = [r for r, c in enumerate(components) if c == components[me]]
            communicator = self._world.Split(components[me], me)
            self._channels[components] = _Channel(communicator, ranks)
        return self._channels[components]

    def _exchange(
        self,
        channel: _Channel,
        call: CollectiveCall,
        outgoing: Mapping[int, list[NDArray[Any]]],
        incoming: Mapping[int, list[Piece]],
    ) -> dict[int, list[NDArray[Any]]]:
        """One alltoallv of bytes among the ranks of a channel; ranks without data for each other send nothing."""
        size = len(channel.position)
        if size == 1:
            return {}
        channel.sequence += 1
        header = np.frombuffer(_HEADER.pack(channel.sequence, call.index), np.uint8)
        send: list[Bytes] = []
        counts = [0] * size
        for rank in sorted(outgoing):
            parts = [header, *(np.ascontiguousarray(a).view(np.uint8).reshape(-1) for a in outgoing[rank])]
            counts[channel.position[rank]] = sum(p.size for p in parts)
            send += parts
        expected = [0] * size
        for rank, pieces in incoming.items():
            nbytes = sum(p.length * call.operands[p.operand].dtype.nbytes for p in pieces)
            expected[channel.position[rank]] = header.size + nbytes
        received = np.empty(sum(expected), np.uint8)
        outbox = np.concatenate(send) if send else np.empty(0, np.uint8)
        request = channel.communicator.Ialltoallv([outbox, counts], [received, expected])
        self._wait(request, self._late_in(call, channel.sequence))
        return self._unpack(channel, call, header, received, incoming)

    def _unpack(
        self,
        channel: _Channel,
        call: CollectiveCall,
        header: Bytes,
        received: Bytes,
        incoming: Mapping[int, list[Piece]],
    ) -> dict[int, list[NDArray[Any]]]:
        got: dict[int, list[NDArray[Any]]] = {}
        at = 0
        for rank in sorted(incoming):
            if not np.array_equal(received[at : at + header.size], header):
                there = _HEADER.unpack(received[at : at + header.size].tobytes())
                raise RunError(
                    f"rank {rank} is in collective {there[1]} (exchange {there[0]}), rank {self.process_index} in "
                    f"collective {call.index} (exchange {channel.sequence})",
                    where=_place(call),
                    fix="the ranks took different branches; a condition that guards collectives must agree on all",
                )
            at += header.size
            arrays = []
            for piece in incoming[rank]:
                dtype = call.operands[piece.operand].dtype
                end = at + piece.length * dtype.nbytes
                array = received[at:end].view(dtype.numpy)
                arrays.append(array if array.flags.aligned else array.copy())
                at = end
            got[rank] = arrays
        return got

    def _wait(self, request: Any, late: Callable[[], RunError], patience: float = 1.0) -> None:
        """Wait until ``request`` is done; poll first, then sleep between polls so that others may run."""
        start = time.monotonic()
        limit = self._timeout * patience
        while not request.Test():
            waited = time.monotonic() - start
            if limit and waited > limit:
                raise late()
            if waited > self._spin:
                # Short at first: a message may take several polls of both sides.
                time.sleep(min(waited / 50, 1e-3))

    def _late(self, what: str, seconds: float, where: str | None = None) -> Callable[[], RunError]:
        return lambda: RunError(
            f"rank {self.process_index} waited {seconds:g} s in {what} for other ranks",
            where=where,
            fix="another rank stopped, died or is much slower; set SHARDC_TIMEOUT=seconds to wait longer, 0 for ever",
        )

    def _late_in(self, call: CollectiveCall, sequence: int) -> Callable[[], RunError]:
        what = f"{call.op} %{call.name} (collective {call.index}, exchange {sequence} of its group)"
        return self._late(what, self._timeout, _place(call))


def _place(call: CollectiveCall) -> str:
    reason = f" ({call.reason})" if call.reason else ""
    return (call.source or f"%{call.name}") + reason
