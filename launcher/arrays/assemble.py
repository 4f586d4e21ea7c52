"""Arrays and shards put together from pieces of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.pieces import Piece, PieceSource, copy_into, inside, overlap, region_text, volume
from shardc.launcher.arrays.sharded_array import Block, ShardedArray

__all__ = ["assemble", "block_of", "shard_text"]

#: Where kernels want arguments to begin.
_ALIGNMENT = 16

A = TypeVar("A", bound=ShardedArray)


def assemble(
    kind: type[A], layout: ArrayLayout, source: PieceSource, transport: Transport, *, copy: bool | None = None
) -> A:
    """An array whose shards on this process are read from ``source``; the same shard is read once."""
    if layout.num_devices < transport.process_count:
        name = layout.name or f"{layout.dtype}{list(layout.dims)}"
        raise InputError(
            f"{name} would be on {count_text(layout.num_devices, 'device')}, but "
            f"the job has {count_text(transport.process_count, 'rank')}",
            fix=f"give a mesh of at least {count_text(transport.process_count, 'device')}",
        )
    made: dict[tuple[int, ...], tuple[Block, bool]] = {}
    blocks: dict[int, Block] = {}
    for device in transport.ownership(layout.num_devices).devices(transport.process_index):
        position = layout.positions[device]
        if position not in made:
            made[position] = block_of(layout, position, source, transport.empty, copy)
        blocks[device] = made[position][0]
    out = kind(layout, blocks, transport)
    out._shared = any(aliased for _, aliased in made.values())
    return out


def block_of(
    layout: ArrayLayout,
    position: tuple[int, ...],
    source: PieceSource,
    empty: Callable[[int], Block],
    copy: bool | None = None,
) -> tuple[Block, bool]:
    """The shard at ``position`` and whether it is the source's own memory; raises `InputError` for missing elements."""
    region = layout.region(position)
    pieces = list(source.pieces(region)) if volume(region) else []
    if copy is not True and (found := _as_it_lies(layout, region, pieces)) is not None:
        return found, True
    if copy is False:
        raise InputError(
            f"{shard_text(layout, region)} is not one aligned block of memory, but copy=False was given",
            fix="omit copy=",
        )
    block = empty(layout.local_bytes)
    if volume(region) != layout.typed(block).size:
        block[...] = 0
    written = copy_into(layout.without_padding(block, position), region, pieces)
    if written != volume(region):
        raise InputError(
            f"{volume(region) - written} elements of {shard_text(layout, region)} are missing",
            fix="give every process the shards of its own devices",
        )
    return block, False


def _as_it_lies(layout: ArrayLayout, region: Region, pieces: Sequence[Piece]) -> Block | None:
    """The memory of the single piece that holds the region in the layout that compiled programs read."""
    if volume(region) != np.prod(layout.local_dims, dtype=np.int64) or len(pieces) != 1:
        return None
    (piece,) = pieces
    if overlap(region, piece.region) != region:
        return None
    part: tuple[Any, ...] = inside(region, piece.region)
    data = piece.data[(*part, ...)]
    if not data.flags.c_contiguous or data.dtype != layout.dtype.numpy or data.ctypes.data % _ALIGNMENT:
        return None
    return data.reshape(-1).view(np.uint8)


def shard_text(layout: ArrayLayout, region: Region) -> str:
    name = f" of {layout.name}" if layout.name else ""
    return f"the shard {region_text(region)}{name} ({layout.dtype}{list(layout.dims)})"
