"""The transport of virtual devices, which all live in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.membership import Ownership, check_call
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.engine.engine_calls import Keep, work_code
from shardc.collectives.in_process.executor import InProcessExecutor
from shardc.collectives.in_process.sections import VirtualSections
from shardc.native.memory.pages import private_pages
from shardc.native.threads.pool import Pool, Row

__all__ = ["LocalTransport"]

T = TypeVar("T")

#: Bytes from which on memory is whole pages.
_PAGES = 64 << 10


class LocalTransport:
    """A job of one process; collectives are copies and reductions in its memory. ``keep`` keeps their code."""

    process_index = 0
    process_count = 1
    ranks = (0,)
    control = None
    node_ranks = ()

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep

    def __eq__(self, other: object) -> bool:
        """All of one process connect the same devices."""
        return isinstance(other, LocalTransport) and other._keep == self._keep

    def __hash__(self) -> int:
        return hash((LocalTransport, self._keep))

    @property
    def job(self) -> Self:
        return self

    def among(self, ranks: Sequence[int]) -> Self:
        return self

    def ownership(self, num_devices: int) -> Ownership:
        return Ownership(num_devices, 1)

    def connect(
        self,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
    ) -> InProcessExecutor:
        members = [check_call(call, ownership.num_devices) for call in calls]
        shared = VirtualSections(rows, sections, ownership.num_devices)
        return InProcessExecutor(calls, members, rows, pool, work_code(keep=self._keep), shared)

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        return private_pages(nbytes) if nbytes >= _PAGES else aligned_bytes(nbytes)

    def exchange_objects(self, value: T, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[T]:
        return [value]

    def wait_first(self, wait: Callable[[], None]) -> None:
        """There is nobody to exchange anything with."""

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        return block
