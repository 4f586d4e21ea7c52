"""`shardc.Array`: what users have of the arrays of compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.sharded_array import Block, ShardedArray

__all__ = ["Array"]


class Array(ShardedArray):
    """What a compiled program returns: global ``shape`` and ``dtype``, ``sharding``, and this process's shards.

    ``np.asarray(x)``, ``float(x)`` and ``x.item()`` never communicate: they work when this process holds the
    whole value (always with virtual devices, and for replicated values everywhere) and raise `InputError`
    otherwise. `gather` brings the value to every rank, and every rank must call it. Arithmetic and NumPy functions
    work on the whole value and give NumPy arrays.
    """

    __slots__ = ()

    def reshard(self, sharding: Any, *, mesh: Any = None) -> Array:
        """The same array in another layout, see `shardc.reshard`; in a job every process must call it."""
        from shardc.launcher.arrays.reshard import reshard

        moved: Array = reshard(self, sharding, mesh=mesh)
        return moved

    def blocks_under(self, target: ArrayLayout, devices: Sequence[int], take: Callable[[int], Block]) -> list[Block]:
        from shardc.launcher.arrays.reshard import blocks_under

        return blocks_under(self, target, devices, take)
