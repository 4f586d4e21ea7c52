"""What the driver asks of a transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import CollectiveCall
from shardc.collectives.engine import Engine
from shardc.collectives.membership import Ownership
from shardc.collectives.memory import DeviceMemory

__all__ = ["Prepared", "Transport"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked collective: ``members`` are the groups (or pairs) that this process has a part in,
    ``most_processes`` the largest number of processes in any group of the call."""

    call: CollectiveCall
    members: tuple[tuple[int, ...], ...]
    engine: Engine
    most_processes: int = 1


class Transport(Protocol):
    """Moves data between the devices of a program, some of which live in this process.

    The same results to the bit on every implementation. All methods but the properties are collective: every
    process of the job calls them in the same order.
    """

    @property
    def process_index(self) -> int: ...

    @property
    def process_count(self) -> int: ...

    def ownership(self, num_devices: int) -> Ownership:
        """Who runs which device; raises `InputError` when there are fewer devices than processes."""
        ...

    def prepare(self, calls: Sequence[CollectiveCall], num_devices: int) -> tuple[Prepared, ...]:
        """Check the collectives of a program and set up what they need, before its first step."""
        ...

    def perform(self, prepared: Prepared, memories: Mapping[int, DeviceMemory]) -> None:
        """Do one collective on the memories of this process's devices."""
        ...

    def exchange_objects(self, value: Any, *, patience: float = 1.0) -> list[Any]:
        """Everybody's ``value``, by process; for small things such as hashes.

        ``patience`` multiplies the time that is waited for the others, for example while they compile.
        """
        ...

    def concatenate(self, block: NDArray[np.uint8], sizes: Sequence[int]) -> NDArray[np.uint8]:
        """Everybody's bytes one after another, by process; ``sizes`` are known to all."""
        ...
