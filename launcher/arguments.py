"""Arguments of a compiled program: checked, cut into shards, laid into aligned memory; and the memory's reuse."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.memory import aligned_bytes
from shardc.hlo.errors import InputError
from shardc.hlo.types import DType
from shardc.launcher.array import Array
from shardc.launcher.layout import Layout

__all__ = ["BufferPool", "as_global", "check_global", "place"]

Block = NDArray[np.uint8]
#: What kernels ask of arguments: vectors may start anywhere, elements at multiples of their size.
_ALIGNMENT = 16
#: What kernels ask of results.
_RESULT = 64

#: Blocks of at least so many bytes are worth tracking: fresh ones cost page faults (the allocator keeps smaller ones).
_LARGE = 1 << 17
#: Blocks of at most so many bytes are cut from larger ones, of so many bytes.
_SMALL, _SLAB = 1 << 10, 1 << 14


class BufferPool:
    """Blocks that nobody uses any more, by size, to be used again without new page faults.

    A block comes back when it is given, or by itself when the last array that views it is gone. Of those that come
    back by themselves at most ``spare`` bytes are kept; ``spare`` grows to what is taken between two calls of `settle`.
    New blocks are from ``empty``, by default the process's own memory.
    """

    def __init__(self, empty: Callable[[int], Block] = aligned_bytes) -> None:
        self._empty = empty
        #: The C library has small blocks at hand; those of another source are worth keeping at any size.
        self._tracked = _LARGE if empty is aligned_bytes else 0
        self._free: dict[int, list[Block]] = {}
        self._left: deque[Block] = deque()
        self._taken = self._spare = 0
        self._slab = aligned_bytes(0)
        self._used = 0

    def take(self, nbytes: int) -> Block:
        self._collect()
        self._taken += nbytes
        free = self._free.get(nbytes)
        if free:
            return free.pop()
        if nbytes <= _SMALL:
            return self._cut(nbytes)
        block = self._empty(nbytes)
        return _leased(block, self._left) if nbytes >= self._tracked else block

    def _cut(self, nbytes: int) -> Block:
        """A small block; its neighbours keep the memory that it lies in."""
        start = self._used
        if start + nbytes > self._slab.size:
            self._slab, start = self._empty(_SLAB), 0
        self._used = (start + nbytes + _RESULT - 1) // _RESULT * _RESULT
        return self._slab[start : start + nbytes]

    def give(self, blocks: Iterable[Block]) -> None:
        """Return blocks; the same block may come several times."""
        for block in {id(b): b for b in blocks}.values():
            self._free.setdefault(block.size, []).append(block)

    def settle(self) -> None:
        """A step is over: so much as one step takes may stay for the next one."""
        self._spare, self._taken = max(self._spare, self._taken), 0

    def _collect(self) -> None:
        """Blocks whose last reader has gone are free again."""
        while self._left:
            block = self._left.popleft()
            if sum(b.size for free in self._free.values() for b in free) + block.size <= self._spare:
                self._free.setdefault(block.size, []).append(_leased(block, self._left))


class _Lease:
    """What arrays over ``block`` are made from; when none of them is left, the block goes to ``left``."""

    def __init__(self, block: Block, left: deque[Block]) -> None:
        self._block = block
        self._left = left
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._left.append(self._block)


def _leased(block: Block, left: deque[Block]) -> Block:
    return np.asarray(_Lease(block, left))


def as_global(value: Any, dtype: DType, where: Callable[[], str]) -> NDArray[Any]:
    """``value`` as a NumPy array; a Python scalar takes the parameter's type when that loses nothing in kind."""
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        ranks = {"pred": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}
        kind = 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2 if isinstance(value, float) else 3
        if kind <= ranks[dtype.kind] and (kind > 0 or dtype.kind == "pred"):
            try:
                return np.asarray(value, dtype.numpy)
            except OverflowError:
                raise InputError(f"{value} does not fit {dtype}", where=where()) from None
        raise InputError(f"a Python {type(value).__name__} was given where {dtype} is needed", where=where())
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as e:
        raise InputError(f"{type(value).__name__} is not an array: {e}", where=where()) from None


def check_global(shape: Sequence[int], dtype: np.dtype[Any], layout: Layout, where: Callable[[], str]) -> None:
    """Shape and element type must be exactly the parameter's."""
    if tuple(shape) != layout.dims:
        raise InputError(
            f"an array of shape {_dims(shape)} was given, the parameter has {_dims(layout.dims)}",
            where=where(),
            fix="pass the global value, not one device's shard",
        )
    if dtype != layout.dtype.numpy:
        raise InputError(
            f"an array of {dtype} was given, the parameter is {layout.dtype}",
            where=where(),
            fix=f"convert it: x.astype({layout.dtype.numpy.name!r})",
        )


def place(
    value: Any, layout: Layout, devices: Sequence[int], pool: BufferPool, where: Callable[[], str]
) -> tuple[list[Block], bool]:
    """One block per device of this process, and whether they came from ``pool``.

    Devices with the same shard share a block. A NumPy array that one shard holds whole is used as it lies. An `Array`
    in another layout is resharded, in a job by all processes together. ``where`` says which argument it is, for errors.
    """
    if isinstance(value, Array):
        blocks = value._live()
        if value._layout.same_data(layout) and all(d in blocks for d in devices):
            return [blocks[d] for d in devices], False
        check_global(value.shape, value.dtype, layout, where)
        from shardc.launcher.reshard import blocks_under

        return blocks_under(value, layout, devices, pool.take), True
    array = as_global(value, layout.dtype, where)
    check_global(array.shape, array.dtype, layout, where)
    if layout.whole and array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0:
        return [array.reshape(-1).view(np.uint8)] * len(devices), False
    made: dict[tuple[int, ...], Block] = {}
    out = []
    for device in devices:
        position = layout.positions[device]
        if position not in made:
            made[position] = pool.take(layout.local_bytes)
            layout.fill(made[position], array, position)
        out.append(made[position])
    return out, True


def _dims(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
