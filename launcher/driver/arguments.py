"""Arguments of a compiled program: checked, cut into shards, laid into aligned memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.hlo.ir.types import DType
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.layout import ArrayLayout, Region
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.buffer_pool import BufferPool

__all__ = ["as_global", "check_global", "place"]

Block = NDArray[np.uint8]
#: What kernels ask of arguments: vectors may start anywhere, elements at multiples of their size.
_ALIGNMENT = 16


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
        raise InputError(f"the parameter is {dtype}, but a Python {type(value).__name__} was given", where=where())
    if type(value) is not np.ndarray:
        from shardc.hlo.masked_arrays import refuse_masked

        refuse_masked(value, where)
    try:
        array = np.asarray(value)
        if array.dtype.hasobject:
            given = kind_text(value)
            fix = "pass an array for each parameter; for the entries of a dict, in the order of the parameters"
            raise InputError(f"{given} was given, not an array", where=where(), fix=fix)
        return array
    except (TypeError, ValueError) as e:
        fix = "give an array of numbers, or nested lists of equal lengths"
        raise InputError(f"{type(value).__name__} is not an array: {e}", where=where(), fix=fix) from None


def check_global(shape: Sequence[int], dtype: np.dtype[Any], layout: ArrayLayout, where: Callable[[], str]) -> None:
    """Shape and element type must be exactly the parameter's."""
    if tuple(shape) != layout.dims:
        raise InputError(
            f"an array of shape {_dims(shape)} was given, but the parameter has {_dims(layout.dims)}",
            where=where(),
            fix="pass the global value, not one device's shard"
            if tuple(shape) == layout.local_dims
            else "pass an array of that shape; for this one, compile the program again, or use shardc.jit, which "
            "compiles for each shape",
        )
    if dtype != layout.dtype.numpy:
        raise InputError(
            f"an array of {dtype} was given, but the parameter is {layout.dtype}",
            where=where(),
            fix=f"convert it: x.astype({layout.dtype.numpy.name!r})",
        )


def in_order(error: InputError, value: Any, number: int, layouts: Sequence[ArrayLayout]) -> InputError:
    """``error`` of argument ``number``; with the order of the parameters where ``value`` has the shape of another."""
    shape = tuple(getattr(value, "shape", ()))
    if shape == layouts[number].dims or all(shape != other.dims for other in layouts):
        return error
    order = ", ".join(f"{a.name or f'arg{k}'} {_dims(a.dims)}" for k, a in enumerate(layouts))
    return InputError(error.what, where=error.where, fix=f"give the arguments in the order of the parameters: {order}")


def place(
    value: Any, layout: ArrayLayout, devices: Sequence[int], pool: BufferPool, where: Callable[[], str]
) -> tuple[list[Block], bool]:
    """One block per device of this process, and whether they came from ``pool``.

    Devices with the same shard share a block. A NumPy array in which every shard lies in one piece is used as it is.
    An `Array` in another layout is resharded, in a job by all processes together. Of an array of JAX's over several
    processes the parts that are here are taken. ``where`` says which argument it is, for errors.
    """
    if isinstance(value, ShardedArray):
        blocks = value._live()
        if value._layout.same_data(layout) and all(d in blocks for d in devices):
            return [blocks[d] for d in devices], False
        check_global(value.shape, value.dtype, layout, where)
        return value.blocks_under(layout, devices, pool.take), True
    if getattr(value, "is_fully_addressable", True) is False:
        check_global(value.shape, value.dtype, layout, where)
        return _own_parts(value, layout, devices, pool, where), True
    array = as_global(value, layout.dtype, where)
    check_global(array.shape, array.dtype, layout, where)
    lying = _as_it_lies(array, layout, devices)
    if lying is not None:
        return lying, False
    made: dict[tuple[int, ...], Block] = {}
    out = []
    for device in devices:
        position = layout.positions[device]
        if position not in made:
            made[position] = pool.take(layout.local_bytes)
            layout.fill(made[position], array, position)
        out.append(made[position])
    return out, True


def _own_parts(
    value: Any, layout: ArrayLayout, devices: Sequence[int], pool: BufferPool, where: Callable[[], str]
) -> list[Block]:
    """A block for each of ``devices`` out of what this process has of an array of JAX's."""
    parts = [
        ([s.indices(n)[:2] for s, n in zip(shard.index, layout.dims, strict=True)], shard.data)
        for shard in value.addressable_shards
    ]
    out = []
    for device in devices:
        region = layout.region(layout.positions[device])
        held = next((part for part in parts if _covers(part[0], region)), None)
        if held is None:
            raise InputError(
                f"this process does not hold the part of the array that device {device} needs",
                where=where(),
                fix="pass it with the sharding that the program was called with",
            )
        ends, data = held
        block = pool.take(layout.local_bytes)
        block[...] = 0
        here = tuple(slice(r.start - low, r.stop - low) for r, (low, _) in zip(region, ends, strict=True))
        layout.without_padding(block, layout.positions[device])[...] = np.asarray(data)[here]
        out.append(block)
    return out


def _covers(ends: Sequence[tuple[int, ...]], region: Region) -> bool:
    return all(low <= r.start and r.stop <= high for r, (low, high) in zip(region, ends, strict=True))


def _as_it_lies(array: NDArray[Any], layout: ArrayLayout, devices: Sequence[int]) -> list[Block] | None:
    """The array's own memory as the shards of ``devices``: whole, or full parts of the first dimension."""
    if not array.flags.c_contiguous:
        return None
    plain = array.reshape(-1).view(np.uint8)
    if plain.ctypes.data % _ALIGNMENT:
        return None
    if layout.whole:
        return [plain] * len(devices)
    size = layout.local_bytes
    if layout.maximal or layout.local_dims[1:] != layout.dims[1:] or size % _ALIGNMENT:
        return None
    parts: dict[tuple[int, ...], Block] = {}
    for position in (layout.positions[d] for d in devices):
        first, *others = position
        if any(others) or (first + 1) * layout.local_dims[0] > layout.dims[0]:
            return None
        if position not in parts:
            parts[position] = plain[first * size : (first + 1) * size]
    return [parts[layout.positions[d]] for d in devices]


def _dims(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
