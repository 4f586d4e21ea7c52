"""NCCL among threads of this process, each of which is a rank with an emulated GPU: moves bytes when a group ends."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardc.hlo.ir.types import DTYPES
from shardc.native.gpu.runtime import Runtime, Stream


@dataclass
class _Meeting:
    """The ranks of one communicator."""

    size: int
    barrier: threading.Barrier
    calls: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)


class World:
    """``ranks`` threads; `run` gives each a transport that knows the others."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.barrier = threading.Barrier(ranks, timeout=60)
        self.said: list[Any] = [None] * ranks
        self.meetings: dict[bytes, _Meeting] = {}
        self.lock = threading.Lock()
        self.names = 0
        #: Names of NCCL's functions that were called.
        self.called: list[str] = []

    def run(self, work: Callable[[Transport], None]) -> None:
        errors: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                work(Transport(self, rank))
            except BaseException as error:
                errors.append(error)
                self.barrier.abort()
                for meeting in self.meetings.values():
                    meeting.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        real = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        if errors:
            raise (real or errors)[0]

    def new_unique_id(self) -> bytes:
        with self.lock:
            self.names += 1
            return str(self.names).encode().ljust(128)

    def communicator(self, runtime: Runtime, unique_id: bytes, size: int, rank: int) -> Communicator:
        with self.lock:
            meeting = self.meetings.setdefault(unique_id, _Meeting(size, threading.Barrier(size, timeout=60)))
        assert meeting.size == size
        return Communicator(self, runtime, meeting, rank)


class Transport:
    """What `NcclCollectives` asks of a job."""

    def __init__(self, world: World, rank: int) -> None:
        self._world, self.process_index, self.process_count = world, rank, world.ranks

    def exchange_objects(self, value: Any, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[Any]:
        self._world.said[self.process_index] = value
        self._world.barrier.wait()
        found = list(self._world.said)
        self._world.barrier.wait()
        return found


class Communicator:
    """One rank's end; `together` does what was put in."""

    def __init__(self, world: World, runtime: Runtime, meeting: _Meeting, rank: int) -> None:
        self._world, self._runtime, self._meeting, self._rank = world, runtime, meeting, rank
        self._calls: list[tuple[Any, ...]] = []

    def send(self, source: int, nbytes: int, peer: int, stream: Stream) -> None:
        self._put("send", source, nbytes, peer)

    def receive(self, to: int, nbytes: int, peer: int, stream: Stream) -> None:
        self._put("receive", to, nbytes, peer)

    def all_gather(self, source: int, to: int, nbytes: int, stream: Stream) -> None:
        self._put("all_gather", source, to, nbytes)

    def all_reduce(self, source: int, to: int, count: int, dtype: str, reduction: str, stream: Stream) -> None:
        self._put("all_reduce", source, to, count, dtype, reduction)

    def reduce_scatter(self, source: int, to: int, count: int, dtype: str, reduction: str, stream: Stream) -> None:
        self._put("reduce_scatter", source, to, count, dtype, reduction)

    def _put(self, *call: Any) -> None:
        self._calls.append(call)
        self._world.called.append(call[0])

    def finish(self) -> None:
        self._runtime.synchronize()
        calls, self._calls = self._calls, []
        self._meeting.calls[self._rank] = calls
        self._meeting.barrier.wait()
        made = [(call, self._value(n, call)) for n, call in enumerate(calls) if call[0] != "send"]
        self._meeting.barrier.wait()  # everybody has read what others may now write over
        for call, data in made:
            ctypes.memmove(call[1] if call[0] == "receive" else call[2], data, len(data))
        self._meeting.barrier.wait()

    def _value(self, number: int, call: tuple[Any, ...]) -> bytes:
        """What ``call``, the rank's ``number``-th, brings."""
        others = [self._meeting.calls[r] for r in range(self._meeting.size)]
        if call[0] == "receive":
            mine = [c for c in others[self._rank] if c[0] == "receive" and c[3] == call[3]]
            sent = [c for c in others[call[3]] if c[0] == "send" and c[3] == self._rank]
            found = sent[next(n for n, c in enumerate(mine) if c is call)]
            assert found[2] == call[2], "both sides name the same number of bytes"
            return ctypes.string_at(found[1], found[2])
        same = [c[number] for c in others]
        assert {c[0] for c in same} == {call[0]}
        if call[0] == "all_gather":
            return b"".join(ctypes.string_at(c[1], c[3]) for c in same)
        return self._reduced(same, call)

    def _reduced(self, same: Sequence[tuple[Any, ...]], call: tuple[Any, ...]) -> bytes:
        name, _, _, count, dtype, reduction = call
        kind = DTYPES[dtype].numpy
        whole = count * (self._meeting.size if name == "reduce_scatter" else 1)
        parts = [np.frombuffer(ctypes.string_at(c[1], whole * kind.itemsize), kind) for c in same]
        total = parts[0]
        for part in parts[1:]:
            total = total + part if reduction == "add" else total * part
        begin = self._rank * count if name == "reduce_scatter" else 0
        return bytes(total[begin : begin + count].tobytes())


@contextmanager
def together(communicator: Communicator) -> Iterator[None]:
    yield
    communicator.finish()
