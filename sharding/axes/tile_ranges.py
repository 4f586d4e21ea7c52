"""Tile assignments read as ranges of the device number.

The numbers 0..N-1 form one long axis; a digit of the device number is a range ``(low, high)`` of it, as for sub-axes
(``low`` positions come before, the digit has ``high / low`` values). A tile assignment orders such digits and assigns
them to dimensions. Explicit device lists are taken apart into digits, too, where they have that structure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.mesh import check_listable
from shardc.hlo.ir.sharding import TileSharding

__all__ = ["Range", "TileRanges", "device_list", "ranges_of_list", "tile_ranges"]

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TileRanges:
    """Digits of the device number per tile dimension (data dimensions, then subgroups), major to minor."""

    devices: int
    dims: tuple[tuple[Range, ...], ...]


def device_list(tile: TileSharding) -> NDArray[np.int64]:
    """The devices of a tiled sharding in tile order, flat."""
    if tile.devices:
        return np.asarray(tile.devices, dtype=np.int64)
    check_listable(tile.num_devices, "tiles")
    ids = np.arange(math.prod(tile.reshape), dtype=np.int64).reshape(tile.reshape)
    return (ids.transpose(tile.transpose) if tile.transpose else ids).reshape(-1)


def tile_ranges(tile: TileSharding, position: NDArray[np.int64] | None = None) -> TileRanges | None:
    """The digits of a tiled sharding; None if it has no such structure.

    ``position[d]`` renames device d before (a mesh with explicit device ids).
    """
    if tile.devices or position is not None:
        devices = device_list(tile)
        if position is not None and devices.max() >= len(position):
            return None
        return ranges_of_list(devices if position is None else position[devices], tile.tile)
    low, digits = 1, []
    for size in tile.reshape:
        digits.append((low, low * size))
        low *= size
    order = tile.transpose or range(len(digits))
    return _hand_out([digits[i] for i in order], tile.tile)


def ranges_of_list(devices: NDArray[np.int64], tile: Sequence[int]) -> TileRanges | None:
    """The digits of an explicit device list, None if the numbers are not digits in some order."""
    total = math.prod(tile)
    grid = devices.reshape(tuple(tile)) if len(devices) == total else None
    if grid is None or devices[0] != 0:
        return None
    offsets: list[NDArray[np.int64]] = []
    dims: list[tuple[Range, ...]] = []
    for d in range(len(tile)):
        line = grid[tuple(slice(None) if k == d else 0 for k in range(len(tile)))]
        digits = _digits(line.tolist(), total)
        if digits is None:
            return None
        dims.append(digits)
        offsets.append(line)
    again = np.zeros(tuple(tile), dtype=np.int64)
    for d, line in enumerate(offsets):
        again += line.reshape([-1 if k == d else 1 for k in range(len(tile))])
    return TileRanges(total, tuple(dims)) if np.array_equal(again, grid) else None


def _digits(line: list[int], total: int) -> tuple[Range, ...] | None:
    """Take a line of device numbers (starting at 0) apart into digits, major to minor."""
    digits: list[Range] = []
    while len(line) > 1:
        stride = line[1]
        run = 2
        while run < len(line) and line[run] == run * stride:
            run += 1
        while len(line) % run:
            run -= 1
        if run == 1 or stride <= 0 or total % (stride * run):
            return None
        high = total // stride
        digits.append((high // run, high))
        heads = line[::run]
        if any(line[i] != heads[i // run] + (i % run) * stride for i in range(len(line))):
            return None
        line = heads
    return tuple(reversed(digits))


def _hand_out(digits: list[Range], tile: Sequence[int]) -> TileRanges | None:
    """Give each tile dimension its digits in order, splitting digits at the boundaries."""
    rest = [d for d in digits if d[0] != d[1]]
    dims: list[tuple[Range, ...]] = []
    for size in tile:
        mine: list[Range] = []
        while size > 1:
            if not rest:
                return None
            low, high = rest[0]
            whole = high // low
            if size % whole == 0:
                mine.append(rest.pop(0))
                size //= whole
            elif whole % size == 0:
                mine.append((low, low * size))
                rest[0] = (low * size, high)
                size = 1
            else:
                return None
        dims.append(tuple(mine))
    total = math.prod(high // low for low, high in digits)
    return None if rest else TileRanges(total, tuple(dims))
