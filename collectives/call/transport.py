"""The protocols of a transport, and of the collective executor that it makes for a program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.control_table import ControlTable
from shardc.collectives.call.membership import Ownership

if TYPE_CHECKING:  # importing shardc loads no LLVM
    from shardc.native.threads.pool import Pool, Row

__all__ = ["CollectiveExecutor", "Transport"]

T = TypeVar("T")


class CollectiveExecutor(Protocol):
    """Does the collectives of one program, on the memory of this process's devices; see
    `shardc.native.drive.drive_loop`.

    ``function`` is the address of ``i32 perform(ptr state, i32 index, i32 phase, i64 deadline)``, ``state`` its first
    argument. It answers 0 when it is done; 1 when it waited ``deadline`` nanoseconds for others, and goes on where it
    was when it is called again with the same arguments; a negative number when it failed.
    """

    @property
    def function(self) -> int: ...

    @property
    def state(self) -> int: ...

    @property
    def threads(self) -> int:
        """Threads of its own that are at work while the devices compute."""
        ...

    def tick(self) -> None:
        """Called whenever ``function`` said that it waits. Raises `RunError` when there is nothing to wait for."""
        ...

    def failure(self, code: int, index: int) -> BaseException:
        """What the negative answer ``code`` of collective ``index`` means."""
        ...

    def close(self) -> None:
        """The program is gone."""
        ...


class Transport(Protocol):
    """Moves data between the devices of a program, some of which live in this process.

    The same results to the bit on every implementation. All methods but the properties, `empty`, `among` and
    `wait_first` are collective: every process that it connects calls them in the same order.
    """

    def __hash__(self) -> int: ...

    @property
    def process_index(self) -> int: ...

    @property
    def process_count(self) -> int: ...

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers in the job of the processes that it connects, by their numbers here."""
        ...

    @property
    def job(self) -> Transport:
        """Connects all processes of the job."""
        ...

    def among(self, ranks: Sequence[int]) -> Transport:
        """Connects some processes of the job, this one among them. They first meet when it is used."""
        ...

    @property
    def control(self) -> ControlTable | None:
        """Where the processes of this node are; None when they cannot show each other."""
        ...

    @property
    def node_ranks(self) -> tuple[int, ...]:
        """The numbers in the job of the processes in `control`, by position."""
        ...

    def ownership(self, num_devices: int) -> Ownership:
        """Who runs which device, where nobody says otherwise; raises `InputError` when there are fewer devices than
        processes."""
        ...

    def connect(
        self,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
    ) -> CollectiveExecutor:
        """Check the collectives of a program and set up what they need, before its first step.

        ``rows`` are this process's devices by ``ownership``; they and their tables stay where they are, and the tables'
        entries change from step to step. ``sections`` of their arenas may become one memory for the members of a group.
        """
        ...

    def empty(self, nbytes: int) -> NDArray[np.uint8]:
        """Uninitialised memory at a multiple of 64 for arenas, arguments and results, where collectives like it best.

        What is larger than a page starts at one, and nothing else lies in its pages.

        It is free again when the array and everything made from it are gone.
        """
        ...

    def wait_first(self, wait: Callable[[], None]) -> None:
        """Call ``wait`` before each exchange that follows: it returns once no other thread of this process exchanges
        anything. Threads would meet those of other processes in any order."""
        ...

    def exchange_objects(self, value: T, *, doing: str = "an exchange", timeout_factor: float = 1.0) -> list[T]:
        """Everybody's ``value``, by number; for small things such as hashes.

        ``timeout_factor`` multiplies the time that is waited for the others, for example while they compile.
        """
        ...

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        """Everybody's bytes one after another, by process; ``sizes`` are known to all."""
        ...
