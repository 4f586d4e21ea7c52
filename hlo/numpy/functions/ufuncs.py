"""Ufuncs as NumPy calls them: types of the loop, broadcasting, ``out=``, ``where=``, and their methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.reducers import extreme_of
from shardc.hlo.numpy.functions.elementwise import UFUNCS, select
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import (
    array,
    broadcast,
    constant,
    convert,
    emit,
    full,
    hlo_dtype,
    lift,
    normal_axes,
    normal_axis,
    refuse,
    reshape,
    splat_of,
)

__all__ = ["IDENTITIES", "accumulate", "call_ufunc", "reduce", "store", "ufunc_method"]

#: What a Python integer is traced as.
_WIDEST = np.iinfo(np.int64)
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_IGNORED = ("order", "subok")

#: What a reduction by a ufunc starts from (for the type), and the HLO operation that combines.
IDENTITIES: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "add": ("add", 0),
        "multiply": ("multiply", 1),
        "maximum": ("maximum", None),
        "minimum": ("minimum", None),
        "fmax": ("maximum", None),
        "fmin": ("minimum", None),
        "logical_and": ("and", True),
        "logical_or": ("or", False),
        "bitwise_and": ("and", -1),
        "bitwise_or": ("or", 0),
        "bitwise_xor": ("xor", 0),
        "logical_xor": ("xor", False),
    }
)


def ufunc_method(
    recorder: Trace,
    ufunc: Any,
    method: str,
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    gufuncs: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Any:
    """What NumPy's ``__array_ufunc__`` protocol asks for; ``gufuncs`` are matmul and its like, by name."""
    out = kwargs.get("out")
    rest = {k: v for k, v in kwargs.items() if k not in _IGNORED and not (k in ("out", "dtype") and v is None)}
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    known = ufunc.__name__ in gufuncs if method == "__call__" and ufunc.signature else ufunc.__name__ in UFUNCS
    handler = _METHODS.get(method)
    if not known or (method != "__call__" and handler is None):
        refuse(recorder, f"np.{name}" if hasattr(np, ufunc.__name__) else f"SciPy's {name}", _NO_UFUNC)
    with recorder.call(name):
        if method == "__call__" and ufunc.signature:
            rest.pop("out", None)
            result = gufuncs[ufunc.__name__](recorder, ufunc, *inputs, **rest)
            return result if out is None else store(result, out[0])
        if method == "__call__":
            return call_ufunc(recorder, ufunc, inputs, **rest)
        assert handler is not None
        return handler(recorder, ufunc, *inputs, **rest)


_NO_UFUNC = "compute it outside of the function and pass the result in, or write it with other NumPy functions"


def call_ufunc(
    recorder: Trace,
    ufunc: Any,
    inputs: Sequence[Any],
    out: tuple[Any, ...] | None = None,
    where: Any = True,
    dtype: Any = None,
    casting: str = "same_kind",
    signature: Any = None,
) -> Any:
    """``ufunc(*inputs)``: NumPy's own types, our operations."""
    if ufunc.__name__ in ("equal", "not_equal") and any(x is None or isinstance(x, str) for x in inputs):
        # No number equals None or a text.
        return full(recorder, np.broadcast_shapes(*map(np.shape, inputs)), ufunc.__name__ == "not_equal")
    values = [lift(recorder, 0 if _is_beyond(x, _WIDEST) else x) for x in inputs]
    types = _loop_types(ufunc, values, dtype, signature, casting)
    given = types[: ufunc.nin]
    dims = np.broadcast_shapes(*(v.shape for v in values))
    fixed = _beyond_range(ufunc, inputs, given)
    if fixed is not None:
        results: Any = full(recorder, dims, fixed)
    else:
        ready = [_operand(x, v, t, dims) for x, v, t in zip(inputs, values, given, strict=True)]
        results = UFUNCS[ufunc.__name__](*ready)
        if ufunc.__name__ in _COMPARISONS:
            results = _compare_beyond(ufunc, values, given, results)
    several = isinstance(results, tuple)
    made = [convert(r, t) for r, t in zip(results if several else (results,), types[ufunc.nin :], strict=True)]
    targets = out if out is not None else (None,) * len(made)
    if where is not True:
        made = [_apply_where(recorder, m, where, t) for m, t in zip(made, targets, strict=True)]
    finished = tuple(m if t is None else store(m, t, casting) for m, t in zip(made, targets, strict=True))
    return finished if several else finished[0]


def _loop_types(ufunc: Any, values: Sequence[Tracer], dtype: Any, signature: Any, casting: str) -> tuple[Any, ...]:
    """Types of operands and results of the loop that NumPy takes for these operands."""
    alone = all(v.weak for v in values)
    kinds = [v.dtype if alone else v.weak or v.dtype for v in values]
    options: dict[str, Any] = {"casting": casting}
    if signature is not None:
        options["signature"] = signature
    elif dtype is not None:
        options["signature"] = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    types = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **options)
    recorder = values[0].recorder
    return tuple(hlo_dtype(t, recorder).numpy for t in types)


def _beyond_range(ufunc: Any, inputs: Sequence[Any], types: Sequence[Any]) -> Any:
    """Comparison with a Python integer that the other operand's type cannot hold: the answer for all elements."""
    if ufunc.__name__ not in _COMPARISONS:
        return None
    for x, t in zip(inputs, types, strict=True):
        if t.kind in "iu" and _is_beyond(x, np.iinfo(t)):
            others = [v if v is x else t.type(0) for v in inputs]
            return ufunc(*others)
    return None


def _is_beyond(value: Any, info: Any) -> bool:
    return type(value) is int and not info.min <= value <= info.max


def _compare_beyond(ufunc: Any, values: Sequence[Tracer], types: Sequence[Any], made: Tracer) -> Tracer:
    """Where a Python integer among the traced ``values`` is beyond the other operand's type, the answer is that of any
    number of the type, 0 for example; ``made`` elsewhere."""
    for value, t in zip(values, types, strict=True):
        if value.weak is int and t.kind in "iu" and t != value.dtype and splat_of(value) is None:
            info = np.iinfo(t)
            fits = NP.logical_and(NP.greater_equal(value, info.min), NP.less_equal(value, info.max))
            of_any = ufunc(*(v if v is value else np.int64(0) for v in values))
            return select(broadcast(fits, made.shape), made, broadcast(of_any, made.shape))
    return made


def _operand(given: Any, value: Tracer, dtype: Any, dims: tuple[int, ...]) -> Tracer:
    if value.weak and not isinstance(given, Tracer):
        with np.errstate(all="ignore"):
            value = constant(value, given, dtype)  # NumPy's OverflowError for integers out of range.
    return broadcast(convert(value, dtype), dims)


def _apply_where(recorder: Trace, made: Tracer, where: Any, target: Any) -> Tracer:
    if target is None:
        refuse(
            recorder,
            "where= without out=: the other elements are undefined",
            "pass out= too, or use np.where(condition, f(x), other)",
        )
    mask = convert(lift(recorder, where), np.bool)
    dims = np.broadcast_shapes(made.shape, mask.shape)
    old = convert(broadcast(lift(recorder, target), dims), made.dtype)
    return select(broadcast(mask, dims), broadcast(made, dims), old)


def store(made: Tracer, target: Any, casting: Any = "same_kind") -> Tracer:
    """Put a result into an ``out=`` argument, which must be traced itself."""
    if not isinstance(target, Tracer):
        raise UnsupportedError(
            "a traced result cannot be written into a plain NumPy array (out=, or x += ... on it)",
            where=str(made.recorder.place()),
            fix="write x = x + ..., or make the buffer with np.zeros(shape, dtype, like=...) or np.zeros_like(x)",
        )
    if not np.can_cast(made.dtype, target.dtype, casting):
        raise InputError(
            f"a result of type {made.dtype} cannot be stored in an array of {target.dtype} (casting {casting!r})",
            where=str(made.recorder.place()),
            fix=f"make that array of type {made.dtype}, or convert the result: x.astype(np.{target.dtype})",
        )
    if np.broadcast_shapes(made.shape, target.shape) != target.shape:
        raise ValueError(f"non-broadcastable output operand with shape {target.shape} doesn't match {made.shape}")
    target.assign(broadcast(convert(made, target.dtype), target.shape))
    return target


# Methods: reduce, accumulate, outer, at.


def reduce(
    recorder: Trace,
    ufunc: Any,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = True,
) -> Tracer:
    """``ufunc.reduce``; sums and products of 16-bit floats are accumulated in 32 bits, as NumPy does."""
    x = array(recorder, x)
    name = ufunc.__name__
    if name not in IDENTITIES:
        refuse(recorder, f"np.{name}.reduce", _NO_UFUNC)
    axes = () if not x.ndim and axis in (0, -1) else normal_axes(axis, x.ndim)
    wanted = _reduced_type(ufunc, x, dtype)
    x = convert(x, wanted)
    wide = np.float32 if wanted.itemsize < 4 and x.aval.dtype.is_float and name in ("add", "multiply") else wanted
    made = _fold(name, convert(x, wide), axes, initial, where)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    made = convert(reshape(made, kept) if keepdims else made, wanted)
    target = out[0] if isinstance(out, tuple) else out
    return made if target is None else store(made, target)


def _reduced_type(ufunc: Any, x: Tracer, dtype: Any) -> Any:
    signature = None if dtype is None else (np.dtype(dtype), None, None)
    if ufunc.__name__.startswith("logical"):
        return np.dtype(bool)
    options: dict[str, Any] = {} if signature is None else {"signature": signature, "casting": "unsafe"}
    types = ufunc.resolve_dtypes((None, x.dtype, None), reduction=True, **options)
    return hlo_dtype(types[1], x.recorder).numpy


def _fold(name: str, x: Tracer, axes: tuple[int, ...], initial: Any, where: Any) -> Tracer:
    opcode, identity = IDENTITIES[name]
    start = _extreme_start(name, x) if identity is None else identity
    given = initial is not None and initial is not NP._NoValue
    if identity is None and not given and (where is not True or 0 in [x.shape[d] for d in axes]):
        raise ValueError(
            f"zero-size array to reduction operation {name} which has no identity"
            if where is True
            else f"reduction operation '{name}' does not have an identity, so to use a where mask one has to "
            "specify 'initial'"
        )
    if where is not True:
        mask = broadcast(convert(lift(x, where), np.bool), x.shape)
        x = select(mask, x, full(x, x.shape, start, x.dtype))
    ignores_nan = name in ("fmax", "fmin")
    made = _without_nan(name, x, axes) if ignores_nan else fold(opcode, x, axes, start)
    if given:
        other = convert(lift(x, initial), x.dtype)
        combined: Tracer = getattr(np, name)(made, other)
        return combined
    return made


def fold(opcode: str, x: Tracer, axes: tuple[int, ...], start: Any) -> Tracer:
    """HLO's reduce with one operation; on bool, add and maximum are or, multiply and minimum are and."""
    if not axes:
        return x
    initial, body = _reducer(opcode, x, start)
    return emit("reduce", x, initial, dimensions=tuple(sorted(axes)), to_apply=body)


def _reducer(opcode: str, x: Tracer, start: Any) -> tuple[Tracer, Computation]:
    """What a fold of ``x`` starts from, and what it combines by."""
    if x.aval.dtype.kind == "pred":
        opcode = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(opcode, opcode)
    body = binary_computation(opcode, x.aval.dtype, x.recorder.unique_name(f"{opcode}_{x.aval.dtype}"))
    return constant(x, start, x.dtype), body


def _extreme_start(name: str, x: Tracer) -> Any:
    """The least (greatest) value of the type."""
    greatest = name in ("minimum", "fmin")
    kind = x.aval.dtype.kind
    if kind == "complex":
        refuse(x, f"np.{name}.reduce of complex numbers", "reduce their real parts or absolute values")
    return extreme_of(x.aval.dtype, greatest=greatest)


def _without_nan(name: str, x: Tracer, axes: tuple[int, ...]) -> Tracer:
    """NaN only where all are NaN."""
    opcode = IDENTITIES[name][0]
    start = _extreme_start(name, x)
    if not x.aval.dtype.is_float:
        return fold(opcode, x, axes, start)
    missing = emit("compare", x, x, direction="NE")
    made = fold(opcode, select(missing, full(x, x.shape, start, x.dtype), x), axes, start)
    nothing = fold("and", missing, axes, True)
    return select(nothing, full(made, made.shape, np.nan, made.dtype), made)


def accumulate(recorder: Trace, ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Tracer:
    """``ufunc.accumulate`` of an associative ufunc: windows of everything up to each element, which run as one pass."""
    x = array(recorder, x)
    name = ufunc.__name__
    if name not in IDENTITIES:
        refuse(recorder, f"np.{name}.accumulate", _NO_UFUNC)
    d = normal_axis(axis, x.ndim)
    wanted = _reduced_type(ufunc, x, dtype)
    x = convert(x, wanted)
    wide = np.float32 if wanted.itemsize < 4 and x.aval.dtype.is_float and name in ("add", "multiply") else wanted
    opcode, identity = IDENTITIES[name]
    start = _extreme_start(name, x) if identity is None else identity
    made = convert(x, wide)
    if name in ("fmax", "fmin") and x.aval.dtype.is_float:
        missing = emit("compare", x, x, direction="NE")
        most = _accumulated(opcode, select(missing, full(x, x.shape, start, x.dtype), x), d, start)
        nothing = _accumulated("and", missing, d, True)
        made = select(nothing, x, most)
    else:
        made = _accumulated(opcode, made, d, start)
    made = convert(made, wanted)
    target = out[0] if isinstance(out, tuple) else out
    return made if target is None else store(made, target)


def _accumulated(opcode: str, x: Tracer, d: int, start: Any) -> Tracer:
    """HLO's reduce-window over everything up to each element of dimension ``d``."""
    n = x.shape[d]
    if n < 2 or not x.size:
        return Tracer(x.recorder, x.instruction)
    if opcode == "add" and x.aval.dtype.is_float:
        start = -0.0
    edge = WindowDim(n, pad_low=n - 1)
    window = Window(tuple(edge if k == d else WindowDim(1) for k in range(x.ndim)))
    initial, body = _reducer(opcode, x, start)
    return emit("reduce-window", x, initial, window=window, to_apply=body)


def outer(recorder: Trace, ufunc: Any, a: Any, b: Any, **options: Any) -> Any:
    """Every element of ``a`` with every element of ``b``."""
    first, second = lift(recorder, a), lift(recorder, b)
    spread = reshape(first, (*first.shape, *(1,) * second.ndim)) if not first.weak else first
    return call_ufunc(recorder, ufunc, (spread, second), **options)


def at(recorder: Trace, ufunc: Any, x: Any, index: Any, value: Any = None) -> None:
    """``x[index] = ufunc(x[index], value)`` with repeated indices counted every time: a scatter."""
    from shardc.hlo.numpy.functions.indexing import scatter_with

    if not isinstance(x, Tracer):
        refuse(recorder, f"np.{ufunc.__name__}.at on a plain NumPy array", "make it with np.zeros(shape, like=x)")
    name = ufunc.__name__
    if name == "subtract":
        name, value = "add", NP.negative(lift(recorder, value))
    if name not in IDENTITIES or name in ("fmax", "fmin"):
        refuse(recorder, f"np.{name}.at", "use add, multiply, maximum, minimum")
    scatter_with(IDENTITIES[name][0], x, index, value)


_METHODS: Mapping[str, Callable[..., Any]] = {
    "__call__": call_ufunc,
    "reduce": reduce,
    "accumulate": accumulate,
    "outer": outer,
    "at": at,
}
