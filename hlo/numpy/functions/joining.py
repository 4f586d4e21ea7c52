"""Arrays put together, cut apart, repeated, rolled and padded."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.strides import Strides
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    broadcast,
    constant,
    convert,
    emit,
    flat_or_along,
    full,
    hlo_dtype,
    iota,
    is_array_like,
    lift,
    normal_axes,
    normal_axis,
    positions,
    refuse,
    reshape,
    slice_ranges,
    take_slice,
)

__all__ = ["FUNCTIONS"]


def _parts(recorder: Trace, arrays: Any, dtype: Any = None) -> list[Tracer]:
    """The arrays of a sequence (or along the first dimension of one), in the type that NumPy joins them to."""
    values = [lift(recorder, a) for a in arrays]
    if not values:
        raise ValueError("need at least one array to concatenate")
    wanted = np.dtype(dtype) if dtype is not None else np.result_type(*(v.dtype for v in values))
    return [convert(v, hlo_dtype(wanted, recorder).numpy) for v in values]


def _join(parts: Sequence[Tracer], axis: int) -> Tracer:
    return parts[0] if len(parts) == 1 else emit("concatenate", *parts, dimensions=(axis,))


def _concatenate(
    recorder: Trace, arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    parts = _parts(recorder, arrays, dtype)
    if axis is None:
        parts, axis = [reshape(p, (p.size,)) for p in parts], 0
    if not parts[0].ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    d = normal_axis(axis, parts[0].ndim)
    for p in parts:
        if p.ndim != parts[0].ndim or p.shape[:d] + p.shape[d + 1 :] != parts[0].shape[:d] + parts[0].shape[d + 1 :]:
            raise ValueError(
                f"all the input array dimensions except for the concatenation axis must match exactly: "
                f"{parts[0].shape} and {p.shape}"
            )
    return Tracer(recorder, _join(parts, d).instruction)


def _stack(recorder: Trace, arrays: Any, axis: int = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = _parts(recorder, arrays, dtype)
    if any(p.shape != parts[0].shape for p in parts):
        raise ValueError("all input arrays must have the same shape")
    d = normal_axis(axis, parts[0].ndim + 1)
    return _join([reshape(p, (*p.shape[:d], 1, *p.shape[d:])) for p in parts], d)


def _stack_function(at_least: Any, axis: int) -> Callable[..., Any]:
    """vstack, hstack and dstack."""

    def function(recorder: Trace, tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        values = [at_least(lift(recorder, a)) for a in tup]
        d = 0 if axis == 1 and values[0].ndim == 1 else axis
        return NP.concatenate(values, axis=d, dtype=dtype, casting=casting)

    return function


def _column_stack(recorder: Trace, tup: Any) -> Any:
    values = [lift(recorder, a) for a in tup]
    return NP.concatenate([reshape(v, (v.size, 1)) if v.ndim < 2 else v for v in values], axis=1)


def _block(recorder: Trace, arrays: Any) -> Any:
    def depth(a: Any) -> int:
        return 1 + max(depth(x) for x in a) if isinstance(a, list) else 0

    def rank(a: Any) -> int:
        return max(rank(x) for x in a) if isinstance(a, list) else lift(recorder, a).ndim

    levels = depth(arrays)
    dims = max(levels, rank(arrays))

    def join(a: Any, level: int) -> Any:
        if isinstance(a, list):
            return NP.concatenate([join(x, level + 1) for x in a], axis=level - levels)
        value = lift(recorder, a)
        return reshape(value, (*(1,) * (dims - value.ndim), *value.shape))

    return join(arrays, 0)


def _array_split(recorder: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = lift(recorder, ary)
    d = normal_axis(axis, x.ndim)
    n = x.shape[d]
    if isinstance(indices_or_sections, (int, np.integer)):
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        sizes = [n // sections + (k < n % sections) for k in range(sections)]
        bounds = [0, *NP.cumsum(sizes).tolist()]
    else:
        bounds = [0, *(int(i) for i in indices_or_sections), n]
    lead = (slice(None),) * d
    return [x[(*lead, slice(a, b))] for a, b in pairwise(bounds)]


def _split(recorder: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = lift(recorder, ary)
    if isinstance(indices_or_sections, (int, np.integer)) and x.shape[axis] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return _array_split(recorder, x, indices_or_sections, axis)


def _split_along(axis: int) -> Callable[..., Any]:
    def function(recorder: Trace, ary: Any, indices_or_sections: Any) -> Any:
        x = lift(recorder, ary)
        return _split(recorder, x, indices_or_sections, 0 if axis == 1 and x.ndim == 1 else axis)

    return function


def _unstack(recorder: Trace, x: Any, /, *, axis: int = 0) -> Any:
    return tuple(NP.moveaxis(lift(recorder, x), axis, 0))


def _tile(recorder: Trace, A: Any, reps: Any) -> Any:
    x = lift(recorder, A)
    counts = tuple(int(n) for n in reps) if isinstance(reps, (tuple, list, np.ndarray)) else (int(reps),)
    rank = max(len(counts), x.ndim)
    dims, counts = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(counts)) + counts
    spread = reshape(x, [m for n in dims for m in (1, n)])
    spread = broadcast(spread, [m for c, n in zip(counts, dims, strict=True) for m in (c, n)])
    made = reshape(spread, [c * n for c, n in zip(counts, dims, strict=True)])
    return Tracer(recorder, made.instruction)


def _repeat(recorder: Trace, a: Any, repeats: Any, axis: Any = None) -> Any:
    x = lift(recorder, a)
    if isinstance(repeats, Tracer):
        refuse(recorder, "np.repeat with traced counts: the result's shape depends on values", "pass plain integers")
    x, d = flat_or_along(NP.atleast_1d(x), axis)
    counts = np.asarray(repeats, np.int64)
    if counts.size > 1:
        return NP.take(x, NP.repeat(positions(x, x.shape[d]), counts), axis=d)
    count = int(counts.reshape(-1)[0])
    spread = reshape(x, (*x.shape[: d + 1], 1, *x.shape[d + 1 :]))
    spread = broadcast(spread, (*x.shape[: d + 1], count, *x.shape[d + 1 :]))
    made = reshape(spread, [n * count if k == d else n for k, n in enumerate(x.shape)])
    return Tracer(recorder, made.instruction)


def _flip(recorder: Trace, m: Any, axis: Any = None) -> Any:
    x = lift(recorder, m)
    axes = normal_axes(axis, x.ndim)
    return x[tuple(slice(None, None, -1 if d in axes else 1) for d in range(x.ndim))]


def _rot90(recorder: Trace, m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    x = lift(recorder, m)
    i, j = normal_axes(tuple(axes), x.ndim)
    turns = int(k) % 4
    if turns in (0, 2):
        return NP.flip(x, (i, j)) if turns else x[:]
    if turns == 1:
        return NP.swapaxes(NP.flip(x, j), i, j)
    return NP.flip(NP.swapaxes(x, i, j), j)


def _roll(recorder: Trace, a: Any, shift: Any, axis: Any = None) -> Any:
    x = lift(recorder, a)
    if axis is None:
        return reshape(_roll(recorder, reshape(x, (x.size,)), shift, 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    pairs = np.broadcast(np.asarray(shifts, np.int64), np.asarray(axes, np.int64))
    for by, d in pairs:
        d = normal_axis(d, x.ndim)
        n = x.shape[d]
        k = int(by) % n if n else 0
        if k:
            x = _join([take_slice(x, d, n - k, n), take_slice(x, d, 0, n - k)], d)
    return Tracer(recorder, x.instruction)


def _append(recorder: Trace, arr: Any, values: Any, axis: Any = None) -> Any:
    return NP.concatenate([lift(recorder, arr), lift(recorder, values)], axis=axis)


def _delete(recorder: Trace, arr: Any, obj: Any, axis: Any = None) -> Any:
    x = lift(recorder, arr)
    if isinstance(obj, Tracer):
        refuse(recorder, "np.delete with traced positions: the result's shape depends on values", "pass plain integers")
    x, d = flat_or_along(x, axis)
    n = x.shape[d]
    if isinstance(obj, (int, np.integer, slice)):
        place = operator.index(obj) if not isinstance(obj, slice) else 0
        if not isinstance(obj, slice) and not -n <= place < n:
            raise IndexError(f"index {place} is out of bounds for axis {d} with size {n}")
        gone = range(n)[obj] if isinstance(obj, slice) else range(place % n, place % n + 1)
        if abs(gone.step) == 1:
            low, high = (min(gone), max(gone) + 1) if gone else (0, 0)
            return _join([take_slice(x, d, 0, low), take_slice(x, d, high, n)], d)
    return NP.take(x, NP.delete(positions(x, n), obj), axis=d)


def _insert(recorder: Trace, arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = lift(recorder, arr)
    x, d = flat_or_along(x, axis)
    if not isinstance(obj, (int, np.integer)):
        refuse(recorder, "np.insert at several or traced positions", "insert one by one, or use np.concatenate")
    n = x.shape[d]
    if not -n <= obj <= n:
        raise IndexError(f"index {obj} is out of bounds for axis {d} with size {n}")
    place = int(obj) + n if int(obj) < 0 else int(obj)
    value = convert(lift(recorder, values), x.dtype)
    if value.ndim == x.ndim:
        part = broadcast(value, [value.shape[d] if k == d else m for k, m in enumerate(x.shape)])
    else:
        rest = [m for k, m in enumerate(x.shape) if k != d]
        slim = broadcast(value, rest) if x.ndim > 1 else reshape(value, (value.size,))
        part = reshape(slim, [1 if k == d else m for k, m in enumerate(x.shape)]) if x.ndim > 1 else slim
    return _join([take_slice(x, d, 0, place), part, take_slice(x, d, place, n)], d)


def _resize(recorder: Trace, a: Any, new_shape: Any) -> Any:
    x = lift(recorder, a)
    dims = tuple(new_shape) if isinstance(new_shape, (tuple, list)) else (int(new_shape),)
    if any(n < 0 for n in dims):
        raise ValueError("all elements of `new_shape` must be non-negative")
    count = math.prod(dims)
    if not x.size or not count:
        return full(x, dims, 0, x.dtype)
    repeated = _tile(recorder, reshape(x, (x.size,)), -(-count // max(x.size, 1)))
    return reshape(take_slice(repeated, 0, 0, count), dims)


#: Windows of so many elements are slices side by side, of which each needs neighbours only; larger ones are gathered.
_MOST_SLICES = 32


def _windows(
    recorder: Trace, x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:
    """Every window along the axes, as new last dimensions: a view that is read only."""
    value = lift(recorder, x)
    if writeable:
        refuse(recorder, "sliding_window_view(writeable=True)", "write into the array that the windows are of")
    sizes = [int(n) for n in np.atleast_1d(window_shape)]
    axes = [normal_axis(a, value.ndim) for a in (range(value.ndim) if axis is None else np.atleast_1d(axis))]
    if len(sizes) != len(axes):
        raise ValueError("window_shape must have one size for each axis")
    counts = list(value.shape)
    for size, d in zip(sizes, axes, strict=True):
        counts[d] -= size - 1
        if size < 0 or counts[d] < 1:
            raise ValueError("window shape cannot be larger than input array shape")
    windows = list(zip(sizes, axes, strict=True))
    made = Tracer(recorder, _read_windows(value, windows, counts).instruction)
    layout = Strides(made.shape, (*value.layout.steps, *(value.layout.steps[d] for _, d in windows)))
    return made.as_view(value, lambda base: _read_windows(base, windows, counts), None, layout)


def _read_windows(value: Any, windows: list[tuple[int, int]], counts: Sequence[int]) -> Any:
    if 0 < math.prod(size for size, _ in windows) <= _MOST_SLICES:
        return _side_by_side(value, [(0, n) for n in counts], windows)
    for size, d in windows:
        count = value.shape[d] - size + 1
        places = NP.add(iota(value, (count, size), 0), iota(value, (count, size), 1))
        value = NP.moveaxis(NP.take(value, places, axis=d), d + 1, -1)
    return value


def _side_by_side(value: Any, ranges: list[tuple[int, int]], windows: list[tuple[int, int]]) -> Any:
    """Slices of one array, moved by one more for each element of windows of (size, axis)."""
    if not windows:
        return slice_ranges(value, [(start, stop, 1) for start, stop in ranges])
    *inner, (size, axis) = windows
    slices = []
    for k in range(size):
        start, stop = ranges[axis]
        slices.append(_side_by_side(value, [*ranges[:axis], (start + k, stop + k), *ranges[axis + 1 :]], inner))
    return NP.stack(slices, axis=-1)


# Padding.


def _pad_widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        made = [(0, 0)] * rank
        for axis, width in pad_width.items():
            low, high = (width, width) if isinstance(width, (int, np.integer)) else width
            made[normal_axis(axis, rank)] = (int(low), int(high))
        return made
    return [(int(low), int(high)) for low, high in NP.broadcast_to(np.asarray(pad_width), (rank, 2))]


def _pad(recorder: Trace, array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    x = lift(recorder, array)
    widths = _pad_widths(pad_width, x.ndim)
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    allowed = {"constant": ("constant_values",), "reflect": ("reflect_type",), "symmetric": ("reflect_type",)}
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap", "empty"):
        refuse(recorder, f"np.pad(mode={mode!r})", "use mode constant, edge, reflect, symmetric or wrap")
    extra = [k for k in options if k not in allowed.get(mode, ())] or (
        ["reflect_type"] if options.get("reflect_type", "even") != "even" else []
    )
    if extra:
        refuse(recorder, f"np.pad(mode={mode!r}, {extra[0]}=)", "omit it, or build the border with np.concatenate")
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, options.get("constant_values", 0))
    for d, (low, high) in enumerate(widths):
        x = _pad_along(x, d, low, high, mode)
    return Tracer(recorder, x.instruction)


def _pad_constant(x: Tracer, widths: Sequence[tuple[int, int]], values: Any) -> Tracer:
    if isinstance(values, Tracer) or (is_array_like(values) and find_tracer(values)):
        values = lift(x, values)
        if values.ndim:
            refuse(x, "np.pad with several traced constant_values", "pad one side at a time with a scalar")
        value = convert(values, x.dtype)
        return emit("pad", x, value, padding=tuple((low, high, 0) for low, high in widths))
    table = NP.broadcast_to(np.asarray(values), (x.ndim, 2))
    if (table == table.reshape(-1)[0]).all() if table.size else True:
        fill = table.reshape(-1)[0] if table.size else 0
        same = constant(x, np.asarray(fill).astype(x.dtype))
        return emit("pad", x, same, padding=tuple((low, high, 0) for low, high in widths))
    for d, sides in enumerate(widths):
        for side in (0, 1):
            value = constant(x, np.asarray(table[d, side]).astype(x.dtype))
            amount = (sides[0], 0, 0) if side == 0 else (0, sides[1], 0)
            x = emit("pad", x, value, padding=tuple(amount if k == d else (0, 0, 0) for k in range(x.ndim)))
    return x


def _beyond(places: Any, n: int, mode: str) -> Any:
    """Which of the positions 0..n-1 stands at ``places`` outside of them."""
    if mode == "edge" or n == 1:
        return NP.clip(places, 0, n - 1)
    if mode == "wrap":
        return places % n
    last = 2 * n - 1 if mode == "symmetric" else 2 * n - 2
    within = places % (2 * n if mode == "symmetric" else last)
    return NP.minimum(within, last - within)


def find_tracer(values: Any) -> bool:
    from shardc.hlo.numpy.values import find_recorder

    return find_recorder([values]) is not None


def _pad_along(x: Tracer, d: int, low: int, high: int, mode: str) -> Tracer:
    """By the positions that NumPy's own padding of 0..n-1 gives, cut into runs: slices, reversed or not."""
    if not low and not high:
        return x
    n = x.shape[d]
    if not n:
        raise ValueError(f"can't extend empty axis {d} using modes other than 'constant' or 'empty'")
    lead = (slice(None),) * d
    runs = [_runs(_beyond(np.arange(*ends), n, mode).tolist()) for ends in ((-low, 0), (n, n + high))]
    parts = []
    for start, stop, step in [*runs[0], (0, n, 1), *runs[1]]:
        if step == 0:
            one = x[(*lead, slice(start, start + 1))]
            parts.append(broadcast(one, [stop if k == d else n for k, n in enumerate(x.shape)]))
        else:
            end = None if stop < 0 else stop
            parts.append(x[(*lead, slice(start, end, step))])
    return _join(parts, d)


def _runs(positions: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of constant step -1, 0 or 1 as (start, stop, step); with step 0, ``stop`` is the length."""
    runs: list[tuple[int, int, int]] = []
    k = 0
    while k < len(positions):
        step = positions[k + 1] - positions[k] if k + 1 < len(positions) else 1
        if step not in (-1, 0, 1):
            step = 1
        end = k + 1
        while end < len(positions) and positions[end] - positions[end - 1] == step:
            end += 1
        runs.append((positions[k], end - k if step == 0 else positions[end - 1] + step, step))
        k = end
    return runs


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "concatenate": _concatenate,
    "concat": _concatenate,
    "stack": _stack,
    "vstack": _stack_function(np.atleast_2d, 0),
    "hstack": _stack_function(np.atleast_1d, 1),
    "dstack": _stack_function(np.atleast_3d, 2),
    "column_stack": _column_stack,
    "block": _block,
    "split": _split,
    "array_split": _array_split,
    "vsplit": _split_along(0),
    "hsplit": _split_along(1),
    "dsplit": _split_along(2),
    "unstack": _unstack,
    "tile": _tile,
    "repeat": _repeat,
    "flip": _flip,
    "flipud": lambda recorder, m: _flip(recorder, m, 0),
    "fliplr": lambda recorder, m: _flip(recorder, m, 1),
    "rot90": _rot90,
    "roll": _roll,
    "append": _append,
    "delete": _delete,
    "insert": _insert,
    "resize": _resize,
    "pad": _pad,
    "lib.stride_tricks.sliding_window_view": _windows,
}
