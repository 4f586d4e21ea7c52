"""The transport of a job on one node: collectives in shared memory, everything else by messages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.control_table import ControlTable
from shardc.collectives.call.exchange import GATHER, RankExchange
from shardc.collectives.call.membership import Ownership
from shardc.collectives.call.transport import Transport
from shardc.collectives.shared_memory.executor import SharedMemoryExecutor
from shardc.collectives.shared_memory.node import ComputeNode
from shardc.collectives.shared_memory.plan import SMALL
from shardc.native.threads.pool import Pool, Row

__all__ = ["SharedTransport"]

T = TypeVar("T")


class SharedTransport:
    """Ranks of one ``node``; ``messages`` tells them what is said before and between programs."""

    def __init__(
        self, messages: Transport, node: ComputeNode, *, small: int = SMALL, job: SharedTransport | None = None
    ) -> None:
        self._messages = messages
        self.node = node
        self._small = small
        self._job = job
        self._wait: Callable[[], None] = lambda: None

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.node.ranks

    @property
    def job(self) -> SharedTransport:
        return self._job or self

    def among(self, ranks: Sequence[int]) -> SharedTransport:
        node = self.node.among(ranks)
        return SharedTransport(node.messages, node, small=self._small, job=self)

    @property
    def process_index(self) -> int:
        return self._messages.process_index

    @property
    def process_count(self) -> int:
        return self._messages.process_count

    @property
    def control(self) -> ControlTable:
        """Where every rank is; see `shardc.collectives.call.control_table`."""
        return self.node.control

    @property
    def node_ranks(self) -> tuple[int, ...]:
        """The ranks of this node by position."""
        return self.node.ranks

    def ownership(self, num_devices: int) -> Ownership:
        return self._messages.ownership(num_devices)

    def connect(
        self,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
    ) -> SharedMemoryExecutor:
        return SharedMemoryExecutor(self.node, calls, ownership, rows, pool, sections, small=self._small)

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        return self.node.heap.empty(nbytes)

    def wait_first(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def exchange_objects(self, value: T, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[T]:
        self._wait()
        with self.control.show_exchange(RankExchange.here(doing), timeout_factor):
            return self._messages.exchange_objects(value, doing=doing, timeout_factor=timeout_factor)

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        self._wait()
        with self.control.show_exchange(RankExchange.here(GATHER)):
            return self._messages.concatenate(block, sizes)
