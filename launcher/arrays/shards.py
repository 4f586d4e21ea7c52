"""The memory of an array's shards in this process: addresses for native code, and NumPy blocks on request.

Shards may lie on an accelerator, their `DeviceContext`; then blocks are copies of them in the host's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.driver.buffer_pool import Lease

__all__ = ["Arrangement", "DeviceContext", "MemoryPiece", "Shards"]

Block = NDArray[np.uint8]
_ALIGNMENT = 64


@dataclass(frozen=True, eq=False, slots=True)
class Arrangement:
    """How the shards of an array on ``devices`` lie in one piece of ``nbytes`` bytes: equal shards once.

    ``firsts`` marks the first device of each distinct shard, ``offsets`` are where each device's shard begins.
    """

    devices: tuple[int, ...]
    firsts: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    shard_bytes: int
    nbytes: int

    @staticmethod
    def of(layout: ArrayLayout, devices: Sequence[int]) -> Arrangement:
        places: dict[object, int] = {}
        slots = [places.setdefault(layout.contents[device], len(places)) for device in devices]
        firsts = _firsts(slots)
        stride = -(-layout.local_bytes // _ALIGNMENT) * _ALIGNMENT if len(places) > 1 else layout.local_bytes
        offsets = np.array(slots, np.int64) * stride
        return Arrangement(tuple(devices), firsts, offsets, layout.local_bytes, stride * len(places))


class MemoryPiece(Protocol):
    """Memory of a device that is free again when neither this nor shards in it are left."""

    @property
    def address(self) -> int: ...


class DeviceContext(Protocol):
    """Memory that is not the host's."""

    def read(self, address: int, nbytes: int) -> Block:
        """A copy of the contents after all work that was started."""
        ...

    def wait(self) -> None:
        """Until all that was started is done; raises what went wrong."""
        ...


class Shards:
    """Where the shards of an array lie on ``devices``: ``addresses`` in their order; ``firsts`` marks the first device
    of each block, since devices with equal shards may share one. ``context`` is None for memory of the host."""

    __slots__ = ("_blocks", "_lease", "_shard_bytes", "addresses", "context", "devices", "firsts")

    def __init__(
        self,
        devices: tuple[int, ...],
        addresses: NDArray[np.int64],
        firsts: NDArray[np.bool_],
        blocks: dict[int, Block] | None,
        lease: Lease | MemoryPiece | None = None,
        shard_bytes: int = 0,
        context: DeviceContext | None = None,
    ) -> None:
        self.devices, self.addresses, self.firsts, self.context = devices, addresses, firsts, context
        self._blocks, self._lease, self._shard_bytes = blocks, lease, shard_bytes

    @staticmethod
    def of(blocks: Mapping[int, Block]) -> Shards:
        """Shards in memory that is there."""
        kept = dict(blocks)
        found = [int(b.__array_interface__["data"][0]) for b in kept.values()]
        return Shards(tuple(kept), np.array(found, np.int64), _firsts(found), kept)

    @staticmethod
    def fresh(arrangement: Arrangement, addresses: NDArray[np.int64], lease: Lease) -> Shards:
        """Shards still to be written, in one piece of memory: ``arrangement.offsets`` from its beginning."""
        return Shards(arrangement.devices, addresses, arrangement.firsts, None, lease, arrangement.shard_bytes)

    @staticmethod
    def on_device(
        arrangement: Arrangement, addresses: NDArray[np.int64], piece: MemoryPiece, context: DeviceContext
    ) -> Shards:
        """The same in memory of ``context``."""
        firsts, nbytes = arrangement.firsts, arrangement.shard_bytes
        return Shards(arrangement.devices, addresses, firsts, None, piece, nbytes, context)

    def rewritten(self) -> Shards:
        """The same shards without cached copies, since they will be overwritten."""
        if self.context is not None:
            self._blocks = None
        return self

    @property
    def blocks(self) -> dict[int, Block]:
        """The bytes of each device's shard; equal addresses are one block."""
        if self._blocks is None and self.context is not None:
            self._blocks = self._read(self.context)
        if self._blocks is None:
            assert isinstance(self._lease, Lease)
            whole = self._lease.array()
            made: dict[int, Block] = {}
            begins = [int(a) - self._lease.address for a in self.addresses]
            for begin in begins:
                if begin not in made:
                    made[begin] = whole[begin : begin + self._shard_bytes]
            return {d: made[b] for d, b in zip(self.devices, begins, strict=True)}
        return self._blocks

    def one_after_another(self, devices: Sequence[int]) -> Block | None:
        """The memory of the shards of ``devices``, if it contains them in this order and without gaps."""
        if not isinstance(self._lease, Lease) or self._blocks is not None:
            return None
        place = dict(zip(self.devices, self.addresses.tolist(), strict=True))
        begins = [place[d] - self._lease.address for d in devices]
        size = self._shard_bytes
        if begins != [begins[0] + k * size for k in range(len(begins))]:
            return None
        return self._lease.array()[begins[0] : begins[0] + len(begins) * size]

    def _read(self, context: DeviceContext) -> dict[int, Block]:
        """Copies of the distinct shards in the host's memory."""
        places = [int(a) for a in self.addresses]
        copies = {place: context.read(place, self._shard_bytes) for place in dict.fromkeys(places)}
        return {d: copies[place] for d, place in zip(self.devices, places, strict=True)}


def _firsts(places: Sequence[int]) -> NDArray[np.bool_]:
    """Which entries are the first of their kind."""
    first: dict[int, int] = {}
    return np.array([first.setdefault(place, n) == n for n, place in enumerate(places)], np.bool_)
