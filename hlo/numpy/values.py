"""Steps that every handler builds on: constants, conversion, broadcasting, slices, and HLO operations on tracers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.types import DType, Shape, array_shape, dtype_of
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer

__all__ = [
    "array",
    "broadcast",
    "constant",
    "convert",
    "emit",
    "equal_shapes",
    "find_recorder",
    "flat_or_along",
    "full",
    "hlo_dtype",
    "iota",
    "is_array_like",
    "lift",
    "normal_axes",
    "normal_axis",
    "positions",
    "refuse",
    "reshape",
    "slice_ranges",
    "splat_of",
    "take_slice",
    "transpose",
]

#: Elements of the largest table that NumPy may make for a constant.
_TABLE = 1 << 28


def find_recorder(values: Iterable[Any]) -> Trace | None:
    """The recorder of the first tracer among ``values``, looked for in lists, tuples and dicts too."""
    for v in values:
        if isinstance(v, Tracer):
            return v.recorder
        if isinstance(v, (list, tuple)):
            found = find_recorder(v)
        elif isinstance(v, dict):
            found = find_recorder(v.values())
        else:
            continue
        if found is not None:
            return found
    return None


def refuse(like: Tracer | Trace, what: str, fix: str) -> NoReturn:
    """Raise `UnsupportedError` with the user's line. ``what`` is what is not supported; a reason may follow, after a
    colon."""
    recorder = like.recorder if isinstance(like, Tracer) else like
    subject, colon, reason = what.partition(": ")
    told = f"{subject} is not supported in a traced function{colon}{reason}"
    raise UnsupportedError(told, where=str(recorder.place()), fix=fix)


def hlo_dtype(dtype: Any, recorder: Trace) -> DType:
    """HLO's element type for a NumPy one; raises `InputError` for objects, strings, dates and long doubles."""
    found = np.dtype(dtype)
    try:
        return dtype_of(found if found.isnative else found.newbyteorder("="))
    except KeyError:
        raise InputError(
            f"element type {found} is not supported in a compiled program",
            where=str(recorder.place()),
            fix="use bool, integers, float16/32/64, complex64/128 or a type of ml_dtypes",
        ) from None


def emit(opcode: str, *operands: Tracer, shape: Shape | None = None, **attrs: Any) -> Tracer:
    """One HLO instruction on tracers."""
    recorder = operands[0].recorder
    return Tracer(recorder, recorder.emit(opcode, [o.instruction for o in operands], shape, **attrs))


def constant(like: Tracer | Trace, value: Any, dtype: Any = None) -> Tracer:
    """A NumPy value, exactly, as a constant."""
    recorder = like.recorder if isinstance(like, Tracer) else like
    refuse_masked(value)
    given = np.asarray(value, dtype=dtype)
    made = given.astype(hlo_dtype(given.dtype, recorder).numpy, copy=False)
    if made.size > 1 and all(s == 0 or n == 1 for s, n in zip(made.strides, made.shape, strict=True)):
        return full(recorder, made.shape, made.reshape(-1)[0], made.dtype)
    return Tracer(recorder, recorder.constant(made))


def lift(like: Tracer | Trace, value: Any) -> Tracer:
    """A tracer from a tracer, an array, a Python number (weakly typed) or a nested list of those."""
    if isinstance(value, Tracer):
        return value
    if isinstance(value, (list, tuple)) and find_recorder(value) is not None:
        parts = [lift(like, v) for v in value]
        result: Tracer = NP.stack(parts)
        return result
    made = constant(like, value)
    if isinstance(value, float):
        made.recorder.numbers.append((value, made.instruction.metadata))
    if isinstance(value, (int, float, complex)) and not isinstance(value, (bool, np.generic)):
        made.weak = int if isinstance(value, int) else float if isinstance(value, float) else complex
    return made


def is_array_like(value: Any) -> bool:
    """Whether the value has elements of a known type: it is neither a Python number nor None."""
    return isinstance(value, (Tracer, np.ndarray, np.generic, list, tuple))


def array(like: Tracer | Trace, value: Any, dtype: Any = None) -> Tracer:
    """`lift`, then `convert` where a type is given. The result may be the value itself."""
    if dtype is not None and not isinstance(value, Tracer) and find_recorder([value]) is None:
        return constant(like, value, dtype)
    lifted = lift(like, value)
    return lifted if dtype is None else convert(lifted, dtype)


def full(like: Tracer | Trace, dims: Sequence[int], value: Any, dtype: Any = None) -> Tracer:
    """Every element is the Python or NumPy scalar ``value``."""
    return broadcast(constant(like, value, dtype), dims)


def iota(like: Tracer | Trace, dims: Sequence[int], axis: int, dtype: Any = np.int64) -> Tracer:
    """Positions along ``axis``."""
    recorder = like.recorder if isinstance(like, Tracer) else like
    shape = array_shape(hlo_dtype(dtype, recorder), *dims)
    return Tracer(recorder, recorder.emit("iota", (), shape, iota_dimension=axis))


def positions(like: Tracer, count: int) -> Any:
    """0, 1, ... as numbers, for a table that becomes a constant."""
    if count > _TABLE:
        refuse(
            like, f"an index array of {count} positions", "use slices, or traced positions: np.take(x, start + steps)"
        )
    return np.arange(count)


def splat_of(x: Tracer) -> Any:
    """The one value of all elements where that is known while tracing, else None."""
    made = x.instruction
    while made.opcode in ("broadcast", "reshape"):
        made = made.operands[0]
    return made.attrs["literal"].splat if made.opcode == "constant" else None


def convert(x: Tracer, dtype: Any) -> Tracer:
    """NumPy's ``astype``: to bool means "not zero", complex to real drops the imaginary part. Weakness is lost."""
    wanted = hlo_dtype(dtype, x.recorder)
    given = x.aval.dtype
    if wanted is given:
        return Tracer(x.recorder, x.instruction) if x.weak else x
    value = splat_of(x)
    if value is not None and not x.shape:
        with np.errstate(all="ignore"):
            return constant(x, np.asarray(value).astype(wanted.numpy))
    if wanted.kind == "pred":
        return emit("compare", x, full(x, x.shape, 0, given.numpy), direction="NE")
    if given.is_complex and not wanted.is_complex:
        x = emit("real", x)
        if x.aval.dtype is wanted:
            return x
    return emit("convert", x, shape=array_shape(wanted, *x.shape))


def broadcast(x: Tracer, dims: Sequence[int]) -> Tracer:
    """NumPy's broadcasting to ``dims``."""
    wanted = tuple(dims)
    if x.shape == wanted:
        return x
    if np.broadcast_shapes(x.shape, wanted) != wanted:
        raise ValueError(f"could not broadcast input array from shape {x.shape} into shape {wanted}")
    lead = len(wanted) - x.ndim
    kept = [d for d, n in enumerate(x.shape) if n == wanted[lead + d]]
    slim = reshape(x, tuple(x.shape[d] for d in kept)) if len(kept) < x.ndim else x
    shape = array_shape(x.aval.dtype, *wanted)
    return emit("broadcast", slim, shape=shape, dimensions=tuple(lead + d for d in kept))


def equal_shapes(*values: Tracer) -> tuple[Tracer, ...]:
    """All broadcast to their common shape."""
    dims = np.broadcast_shapes(*(v.shape for v in values))
    return tuple(broadcast(v, dims) for v in values)


def reshape(x: Tracer, dims: Sequence[int]) -> Tracer:
    """The same elements in row-major order; no -1 here."""
    if tuple(dims) == x.shape:
        return x
    return emit("reshape", x, shape=array_shape(x.aval.dtype, *dims))


def transpose(x: Tracer, order: Sequence[int]) -> Tracer:
    if tuple(order) == tuple(range(x.ndim)):
        return x
    return emit("transpose", x, dimensions=tuple(order))


def slice_ranges(x: Tracer, ranges: Sequence[tuple[int, int, int]]) -> Tracer:
    """(start, limit, stride) per dimension, strides positive."""
    if tuple(ranges) == tuple([(0, n, 1) for n in x.shape]):
        return x
    return emit("slice", x, slice=tuple(ranges))


def take_slice(x: Tracer, axis: int, start: int, stop: int) -> Tracer:
    """``x[start:stop]`` along one axis."""
    ranges = [(0, n, 1) for n in x.shape]
    ranges[axis] = (start, stop, 1)
    return slice_ranges(x, ranges)


def normal_axis(axis: Any, rank: int) -> int:
    """An axis from 0 on; raises NumPy's AxisError."""
    number = int(axis)
    if not -rank <= number < rank:
        raise np.exceptions.AxisError(number, rank)
    return number % rank


def flat_or_along(x: Tracer, axis: Any) -> tuple[Tracer, int]:
    """``x`` and its axis; without one ``x`` is flattened. Raises NumPy's AxisError."""
    if axis is None:
        return reshape(x, (x.size,)), 0
    return x, normal_axis(axis, x.ndim)


def normal_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """All axes for None, else those given, from 0 on and each once."""
    if axis is None:
        return tuple(range(rank))
    axes = tuple(normal_axis(a, rank) for a in axis) if isinstance(axis, (tuple, list)) else (normal_axis(axis, rank),)
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return axes
