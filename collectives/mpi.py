"""MPI ranks, through mpi4py: communicators per set of replica groups, messages of bytes, a bounded wait.

Ranks that exchange data in a collective, directly or through others, share one communicator. It is created by
all ranks together before the first step, in program order, and kept for every collective over the same sets, so
that creation cannot deadlock. The caller starts MPI (`shardc.launcher.mpi_environment`) and passes
``MPI.COMM_WORLD``; this module never imports ``mpi4py.MPI`` itself.

The first message between two ranks in an exchange starts with the number of the exchange and the index of the
collective: ranks that took different ways through the program are found out.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import CollectiveCall
from shardc.collectives.callback import CallbackPerformer
from shardc.collectives.engine import Engine, Limits, Piece
from shardc.collectives.membership import Ownership, check_call, connected_processes
from shardc.collectives.memory import Memory, aligned_bytes
from shardc.collectives.transport import Prepared
from shardc.hlo.errors import InputError, RunError
from shardc.native.pool import Pool, Row

__all__ = ["MpiTransport"]

Bytes = NDArray[np.uint8]

_HEADER = struct.Struct("<QQ")
#: Messages up to this many bytes travel with their header.
_SHORT = 4096
#: Every MPI has at least this many tags.
_TAGS = 1 << 14
#: Bytes per second that any network moves; slower than that, a wait may sleep.
_SLOWEST = 50e6


class _Channel:
    """A communicator, the world ranks in it by position, and how many exchanges it has done."""

    def __init__(self, communicator: Any, ranks: Sequence[int]) -> None:
        self._communicator = communicator
        self._position = {rank: i for i, rank in enumerate(ranks)}
        self.sequence = 0

    def send(self, data: Bytes, rank: int) -> Any:
        return self._communicator.Isend(data, self._position[rank], self.sequence % _TAGS)

    def receive(self, into: Bytes, rank: int) -> Any:
        return self._communicator.Irecv(into, self._position[rank], self.sequence % _TAGS)


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

    def connect(
        self, calls: Sequence[CollectiveCall], num_devices: int, rows: ctypes.Array[Row], pool: Pool
    ) -> CallbackPerformer:
        return CallbackPerformer(self.prepare(calls, num_devices), rows, self.perform)

    def empty(self, nbytes: int) -> Bytes:
        return aligned_bytes(nbytes)

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

    def perform(self, prepared: Prepared, memories: Mapping[int, Memory]) -> None:
        prepared.engine.perform(prepared.call, prepared.members, memories, prepared.most_processes)

    def exchange_objects(self, value: Any, *, patience: float = 1.0) -> list[Any]:
        import pickle

        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.process_count, np.int64)
        request = self._world.Iallgather(np.array([data.size], np.int64), sizes)
        self._wait([request], _Doing("the exchange of program hashes"), patience=patience)
        blocks = self.concatenate(data, sizes.tolist())
        ends = np.cumsum(sizes)
        return [pickle.loads(blocks[e - s : e].tobytes()) for s, e in zip(sizes, ends, strict=True)]

    def concatenate(self, block: Bytes, sizes: Sequence[int]) -> Bytes:
        """Every rank's bytes, one after another: a broadcast from each that has any.

        (Not Iallgatherv: the ring of Intel MPI 2021 never ends when some ranks have none.)
        """
        out = np.empty(sum(sizes), np.uint8)
        ends = np.cumsum(sizes).tolist()
        me = self.process_index
        out[ends[me] - sizes[me] : ends[me]] = block[: sizes[me]]
        pieces = [
            (rank, out[at : min(at + self._limits.chunk, end)])
            for rank, (size, end) in enumerate(zip(sizes, ends, strict=True))
            for at in range(end - size, end, self._limits.chunk)
        ]
        while pieces:
            requests, moved = [], 0
            while pieces and (not requests or moved + pieces[0][1].size <= self._limits.chunk):
                rank, piece = pieces.pop(0)
                requests.append(self._world.Ibcast(piece, rank))
                moved += piece.size
            self._wait(requests, _Doing("a gather"), moved)
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
        """Send and receive pieces, rank by rank.

        First every sender announces itself to its receivers; few bytes travel with the announcement, more follow
        when all have arrived: a rank may sleep while it waits for others, but not while data moves.
        """
        channel.sequence += 1
        doing = _doing(call, channel.sequence)
        header = np.frombuffer(_HEADER.pack(channel.sequence, call.index), np.uint8)
        sizes = {rank: sum(_nbytes(call, p) for p in pieces) for rank, pieces in incoming.items()}
        opened = {r: np.empty(header.size + (n if n <= _SHORT else 0), np.uint8) for r, n in sizes.items()}
        requests = [channel.receive(buffer, rank) for rank, buffer in opened.items()]
        long: dict[int, list[Bytes]] = {}
        for rank, arrays in outgoing.items():
            parts = [np.ascontiguousarray(a).view(np.uint8).reshape(-1) for a in arrays]
            if sum(p.size for p in parts) <= _SHORT:
                requests.append(channel.send(np.concatenate([header, *parts]), rank))
            else:
                requests.append(channel.send(header, rank))
                long[rank] = parts
        self._wait(requests, doing)
        for rank, buffer in opened.items():
            self._check_header(channel, call, rank, buffer[: header.size])
        bodies = {
            r: [np.empty(_nbytes(call, p), np.uint8) for p in incoming[r]] for r, n in sizes.items() if n > _SHORT
        }
        requests = [channel.receive(body, rank) for rank, blocks in bodies.items() for body in blocks]
        requests += [channel.send(part, rank) for rank, parts in long.items() for part in parts]
        moved = sum(b.size for blocks in (*bodies.values(), *long.values()) for b in blocks)
        self._wait(requests, doing, moved)
        short = {r: _cut(call, incoming[r], b[header.size :]) for r, b in opened.items() if r not in bodies}
        found = {**bodies, **short}
        return {
            rank: [b.view(call.operands[p.operand].dtype.numpy) for b, p in zip(found[rank], pieces, strict=True)]
            for rank, pieces in incoming.items()
        }

    def _check_header(self, channel: _Channel, call: CollectiveCall, rank: int, header: Bytes) -> None:
        sequence, index = _HEADER.unpack(header.tobytes())
        if (sequence, index) != (channel.sequence, call.index):
            raise RunError(
                f"rank {rank} is in collective {index} (exchange {sequence}), rank {self.process_index} in "
                f"collective {call.index} (exchange {channel.sequence})",
                where=_place(call),
                fix="the ranks took different branches; a condition that guards collectives must agree on all",
            )

    def _wait(self, requests: list[Any], doing: _Doing, moved: int = 0, patience: float = 1.0) -> None:
        """Wait until ``requests`` are done: poll, and sleep between polls when it takes long.

        While ``moved`` bytes are on their way both sides must keep polling: MPI moves them in small steps.
        """
        if not requests:
            return
        start = time.monotonic()
        limit = self._timeout * patience
        busy = self._spin + moved / _SLOWEST
        try:
            while not requests[0].Testall(requests):
                waited = time.monotonic() - start
                if limit and waited > limit:
                    raise doing.late(self.process_index, limit)
                if waited < busy:
                    _let_others_run()
                else:
                    time.sleep(min(waited / 50, 1e-3))
        except RuntimeError as e:  # mpi4py's exceptions are of this kind
            raise doing.failed(self.process_index, e) from None


@dataclass(frozen=True, slots=True)
class _Doing:
    """What a rank waits in, for messages."""

    what: str
    where: str | None = None

    def late(self, rank: int, seconds: float) -> RunError:
        return RunError(
            f"rank {rank} waited {seconds:g} s in {self.what} for other ranks",
            where=self.where,
            fix="another rank stopped, died or is much slower; set SHARDC_TIMEOUT=seconds to wait longer, 0 for ever",
        )

    def failed(self, rank: int, error: Exception) -> RunError:
        return RunError(
            f"MPI failed on rank {rank} in {self.what}: {error}",
            where=self.where,
            fix="another rank died, or took a different branch and sent something else",
        )


def _doing(call: CollectiveCall, sequence: int) -> _Doing:
    what = f"{call.op} %{call.name} (collective {call.index}, exchange {sequence} of its group)"
    return _Doing(what, _place(call))


def _place(call: CollectiveCall) -> str:
    reason = f" ({call.reason})" if call.reason else ""
    return (call.source or f"%{call.name}") + reason


def _nbytes(call: CollectiveCall, piece: Piece) -> int:
    return piece.length * call.operands[piece.operand].dtype.nbytes


def _cut(call: CollectiveCall, pieces: Sequence[Piece], block: Bytes) -> list[Bytes]:
    """A block of several pieces as aligned arrays."""
    ends = np.cumsum([_nbytes(call, p) for p in pieces])
    return [block[e - _nbytes(call, p) : e].copy() for p, e in zip(pieces, ends, strict=True)]


def _let_others_run() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
