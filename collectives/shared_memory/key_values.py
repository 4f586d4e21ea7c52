"""What processes of a job tell each other through a store of values by name, where they were started without MPI.

A coordinator that everybody reaches keeps the values, such as that of ``jax.distributed``. It is for hashes and the
addresses of memory; collectives go through the memory that the processes of a node share.
"""

from __future__ import annotations

import ctypes
import itertools
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.exchange import GATHER, WATCHED, RankExchange
from shardc.collectives.call.membership import Ownership
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.transport import CollectiveExecutor
from shardc.hlo.errors import EnvironmentProblem
from shardc.native.threads.pool import Pool, Row

__all__ = ["KeyValueMessages", "KeyValueStore"]

T = TypeVar("T")

#: Bytes of a value; seconds between two looks at signals.
_MOST, _LOOK = 1 << 20, 0.5


class KeyValueStore(Protocol):
    """Values by name that all processes of a job see; a name is given a value once."""

    def put(self, name: str, value: bytes) -> None: ...

    def get(self, name: str, seconds: float) -> bytes | None:
        """The value, as soon as there is one; None if that takes longer."""


class KeyValueMessages:
    """The exchanges of a job of ``process_count`` processes; it connects no programs.

    A part of the job (``ranks`` of ``job``) has names of its own in the store. ``timeout`` bounds the seconds of a wait
    (0: no bound); `RunError` then names who is missing.
    """

    control = None
    node_ranks: tuple[int, ...] = ()

    def __init__(
        self,
        store: KeyValueStore,
        process_index: int,
        process_count: int,
        timeout: float = 60.0,
        *,
        ranks: Sequence[int] = (),
        job: KeyValueMessages | None = None,
    ) -> None:
        self.process_index, self.process_count = process_index, process_count
        self.ranks = tuple(ranks) or tuple(range(process_count))
        self.job = job or self
        self._store, self._timeout = store, timeout
        self._folder = "shardc" if job is None else f"shardc/{'-'.join(map(str, ranks))}"
        self._numbers = itertools.count()
        #: Whether a watchdog reports the missing rank when the time is up.
        self.watched = False

    def among(self, ranks: Sequence[int]) -> KeyValueMessages:
        me = ranks.index(self.process_index)
        return KeyValueMessages(self._store, me, len(ranks), self._timeout, ranks=ranks, job=self)

    def ownership(self, num_devices: int) -> Ownership:
        return Ownership(num_devices, self.process_count)

    def connect(
        self,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
    ) -> CollectiveExecutor:
        raise EnvironmentProblem(
            "ranks that share only a key-value store cannot run a program", fix="start the job with shardc mpiexec"
        )

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        return aligned_bytes(nbytes)

    def wait_first(self, wait: Callable[[], None]) -> None:
        """The transport that has these messages waits."""

    def exchange_objects(self, value: T, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[T]:
        exchange = RankExchange.here(doing)
        blocks = self._exchange(pickle.dumps(value), exchange, timeout_factor)
        return [pickle.loads(block) for block in blocks]

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        mine = block[: sizes[self.process_index]].tobytes()
        return np.frombuffer(b"".join(self._exchange(mine, RankExchange.here(GATHER), 1.0)), np.uint8)

    def _exchange(self, data: bytes, exchange: RankExchange, timeout_factor: float) -> list[bytes]:
        number = next(self._numbers)
        header = pickle.dumps(exchange)
        self._put(number, len(header).to_bytes(8, "little") + header + data)
        found = []
        for rank in range(self.process_count):
            block = self._get(number, rank, exchange, timeout_factor)
            start = 8 + int.from_bytes(block[:8], "little")
            theirs = pickle.loads(block[8:start])
            if theirs.what != exchange.what:
                raise exchange.other(self.ranks[self.process_index], theirs, self.ranks[rank])
            found.append(block[start:])
        return found

    def _put(self, number: int, data: bytes) -> None:
        """Part by part; each begins with how many follow."""
        parts = [data[at : at + _MOST] for at in range(0, len(data), _MOST)] or [b""]
        for k, part in enumerate(parts):
            left = len(parts) - 1 - k
            self._store.put(self._name(number, self.process_index, k), left.to_bytes(8, "little") + part)

    def _get(self, number: int, rank: int, exchange: RankExchange, timeout_factor: float) -> bytes:
        parts: list[bytes] = []
        left = 1
        while left:
            found = self._wait(self._name(number, rank, len(parts)), rank, exchange, self._timeout * timeout_factor)
            left = int.from_bytes(found[:8], "little")
            parts.append(found[8:])
        return b"".join(parts)

    def _wait(self, name: str, rank: int, exchange: RankExchange, limit: float) -> bytes:
        start = time.monotonic()
        grace = WATCHED if self.job.watched else 0.0
        while (found := self._store.get(name, _LOOK)) is None:
            if limit and time.monotonic() - start > limit + grace:
                raise exchange.late(self.ranks[self.process_index], limit, f"rank {self.ranks[rank]}")
        return found

    def _name(self, number: int, rank: int, part: int) -> str:
        return f"{self._folder}/{number}/{rank}/{part}"
