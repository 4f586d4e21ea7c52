"""The placement of an array's shards: device i of the k along a dimension holds [i c, min((i+1) c, n)), c =
ceil(n/k)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.executable import ArraySpec
from shardc.hlo.ir.groups import groups_grid
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import DType

__all__ = ["ArrayLayout", "Region", "shard_positions"]

Region = tuple[slice, ...]


@lru_cache(maxsize=4096)
def shard_positions(sharding: Sharding | None, num_devices: int, rank: int) -> tuple[tuple[int, ...], ...]:
    """For each device the number of its shard along each dimension.

    Example: ``P("x", "y")`` on a 2x2 mesh gives ``((0, 0), (0, 1), (1, 0), (1, 1))``.
    """
    positions = np.zeros((num_devices, rank), np.int64)
    if sharding is not None and sharding.mesh.size == num_devices:
        for dimension, axes in enumerate(sharding.axes_by_dim):
            if axes:
                grid = groups_grid(sharding.mesh, axes)
                positions[grid, dimension] = np.arange(grid.shape[1])
    return tuple(tuple(row) for row in positions.tolist())


@dataclass(frozen=True)
class ArrayLayout:
    """A global array of ``dims`` and ``dtype`` on ``num_devices`` devices under ``sharding`` (None: replicated)."""

    name: str
    dims: tuple[int, ...]
    local_dims: tuple[int, ...]
    dtype: DType
    sharding: Sharding | None
    num_devices: int

    @staticmethod
    def of(spec: ArraySpec, num_devices: int) -> ArrayLayout:
        whole, local = spec.global_shape, spec.local_shape
        return ArrayLayout(spec.name, whole.dims, local.dims, whole.dtype, spec.sharding, num_devices)

    @cached_property
    def local_bytes(self) -> int:
        """Bytes of one device's shard, padding included."""
        return int(np.prod(self.local_dims, dtype=np.int64)) * self.dtype.nbytes

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The shard number of each device along each dimension."""
        return shard_positions(self.sharding, self.num_devices, len(self.dims))

    @cached_property
    def contents(self) -> tuple[object, ...]:
        """What each device holds: devices with equal ones hold the same data, and partial values differ."""
        if self.maximal:
            return tuple(range(self.num_devices))
        if self.sharding is None or not self.sharding.unreduced:
            return self.positions
        grid = groups_grid(self.sharding.mesh, self.sharding.unreduced)
        parts = np.zeros(self.num_devices, np.int64)
        parts[grid] = np.arange(grid.shape[1])
        return tuple(zip(self.positions, parts.tolist(), strict=True))

    def region(self, position: Iterable[int]) -> Region:
        """The part of the global array that a shard holds, without padding; empty for one beyond the end."""
        cut = zip(position, self.local_dims, self.dims, strict=True)
        return tuple(slice(min(p * c, n), min((p + 1) * c, n)) for p, c, n in cut)

    @cached_property
    def holders(self) -> dict[tuple[int, ...], int]:
        """The first device that holds each distinct shard."""
        if self.sharding is not None and self.sharding.mesh.is_maximal and self.sharding.mesh.device_ids:
            return {(0,) * len(self.dims): self.sharding.mesh.device_ids[0]}
        out: dict[tuple[int, ...], int] = {}
        for device, position in enumerate(self.positions):
            out.setdefault(position, device)
        return out

    @cached_property
    def whole(self) -> bool:
        """Whether every shard holds the whole array."""
        return self.local_dims == self.dims and len(set(self.positions)) == 1

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The first devices that hold the shards, in order, where these are equal parts of the first dimension; else
        empty. Such shards, one after another, are the whole array."""
        cut = len(self.dims) > 0 and self.local_dims[1:] == self.dims[1:]
        partial = self.sharding is not None and bool(self.sharding.unreduced)
        if not cut or partial or self.local_dims[0] * len(self.holders) != self.dims[0]:
            return ()
        return tuple(device for _, device in sorted(self.holders.items()))

    @cached_property
    def maximal(self) -> bool:
        """Whether a single device holds the array."""
        return self.sharding is not None and self.sharding.mesh.is_maximal

    @cached_property
    def _data(self) -> tuple[object, ...]:
        return self.dims, self.local_dims, self.dtype, self.contents

    def same_data(self, other: ArrayLayout) -> bool:
        """Whether shards of the layout ``other`` fit this layout unchanged."""
        return self is other or self._data == other._data

    def typed(self, block: NDArray[np.uint8]) -> NDArray[Any]:
        """A shard's bytes as an array of ``local_dims``."""
        return block[: self.local_bytes].view(self.dtype.numpy).reshape(self.local_dims)

    def without_padding(self, block: NDArray[np.uint8], position: Iterable[int]) -> NDArray[Any]:
        """A shard's elements that are part of the global array."""
        part: tuple[Any, ...] = tuple(slice(0, s.stop - s.start) for s in self.region(position))
        # The ellipsis keeps an array without dimensions an array.
        return self.typed(block)[(*part, ...)]

    def fill(self, block: NDArray[np.uint8], value: NDArray[Any], position: Iterable[int]) -> None:
        """Copy the shard at ``position`` out of a global array; padding becomes zero."""
        region = self.region(position)
        shard = self.typed(block)
        if any(s.stop - s.start != c for s, c in zip(region, self.local_dims, strict=True)):
            block[...] = 0
        shard[tuple(slice(0, s.stop - s.start) for s in region)] = value[region]
