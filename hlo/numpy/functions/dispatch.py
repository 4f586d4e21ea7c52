"""NumPy's functions by name: the tables of all families, merged, and the calls that come through the protocols."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.numpy.array_api import ArrayNamespace
from shardc.hlo.numpy.functions import (
    contraction,
    counting,
    creation,
    fourier,
    indexing,
    joining,
    linalg,
    numeric,
    selection,
    shape,
    sorting,
    statistics,
)
from shardc.hlo.numpy.functions.ufuncs import store, ufunc_method
from shardc.hlo.numpy.recorder import Protocols, Trace

__all__ = ["FUNCTIONS", "PROTOCOLS", "REFUSED", "supported_functions"]

Handler = Callable[..., Any]

_DYNAMIC = "the result's shape depends on values"
_MASKS = "use a mask: np.where(condition, x, y), np.sum(x, where=condition), np.sum(condition)"

#: Functions that cannot be traced: names, why, and what to use instead.
_REFUSED_ROWS = (
    ("nonzero argwhere flatnonzero trim_zeros", _DYNAMIC, _MASKS),
    (
        "unique unique_all unique_counts unique_inverse unique_values union1d intersect1d setdiff1d setxor1d",
        _DYNAMIC,
        "shardc.numpy.unique(x, size=n) gives n values; or np.sort and compare neighbours: a mask has a fixed shape",
    ),
    (
        "save savetxt savez savez_compressed array2string array_repr array_str datetime_as_string",
        "traced values have no elements to write",
        "do it outside of the function, with the result",
    ),
    ("apply_along_axis apply_over_axes", "it loops over elements", "write the function for whole arrays"),
    ("roots poly polyfit polydiv", "its steps depend on values", "use np.linalg, or compute it outside"),
    ("may_share_memory shares_memory", "traced values have no memory", "remove this call"),
)
REFUSED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {name: (why, fix) for names, why, fix in _REFUSED_ROWS for name in names.split()}
)


def _by_name() -> dict[str, Handler]:
    elements = (shape, joining, selection, creation, sorting, counting)
    families = (*elements, statistics, contraction, numeric, linalg, fourier)
    merged: dict[str, Handler] = {}
    for family in families:
        merged.update({k: v for k, v in family.FUNCTIONS.items() if isinstance(k, str)})
    return merged


def _resolve(name: str) -> Any:
    """The NumPy function of this name, None where this release has none."""
    try:
        return functools.reduce(getattr, name.split("."), np)
    except AttributeError:
        return None


#: Handlers by NumPy's names: ``handler(recorder, *args, **kwargs)``.
FUNCTIONS: Mapping[str, Handler] = MappingProxyType(_by_name())


def _table() -> dict[Any, tuple[str, Handler]]:
    """Name and handler by function object; the stand-ins of methods and indexing have no name in NumPy."""
    found = {_resolve(name): (name, handler) for name, handler in reversed(list(FUNCTIONS.items()))}
    found.pop(None, None)
    for family in (shape, indexing):
        found.update({k: (k.__name__.strip("_"), v) for k, v in family.FUNCTIONS.items() if not isinstance(k, str)})
    return found


_TABLE: Mapping[Any, tuple[str, Handler]] = MappingProxyType(_table())
_REFUSED: Mapping[Any, str] = MappingProxyType({_resolve(n): n for n in REFUSED if _resolve(n) is not None})


def supported_functions() -> list[str]:
    """Names of the NumPy functions (besides ufuncs) that can be traced with this release of NumPy."""
    return sorted(n for n in FUNCTIONS if _resolve(n) is not None)


def call_function(recorder: Trace, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """NumPy's ``__array_function__``: find the handler, check the arguments, put the result where ``out=`` says."""
    if func not in _TABLE:
        raise _unknown(recorder, func)
    name, handler = _TABLE[func]
    with recorder.call(name):
        return _call(recorder, func, name, handler, args, dict(kwargs))


def _call(
    recorder: Trace, func: Any, name: str, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    out = kwargs.pop("out", None)
    args, positional = _without_out(func, handler, args)
    out = positional if positional is not None else out
    if not _takes(handler, len(args), tuple(kwargs)):
        raise _bad_arguments(recorder, func, name, handler, args, kwargs)
    result = handler(recorder, *args, **kwargs)
    if out is None:
        return result
    return store(result, out[0] if isinstance(out, tuple) else out)


@functools.cache
def _takes(handler: Handler, count: int, names: tuple[str, ...]) -> bool:
    """Whether a handler can be called with ``count`` arguments by position, and with ``names`` by name."""
    try:
        _signature(handler).bind(None, *range(count), **dict.fromkeys(names))
    except TypeError:
        return False
    return True


@functools.cache
def _signature(handler: Handler) -> inspect.Signature:
    return inspect.signature(handler)


@functools.cache
def _out_position(func: Any) -> int | None:
    """Where ``out`` stands among the positional parameters of a NumPy function."""
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("out") if "out" in names and not names[0].startswith("operands") else None


def _without_out(func: Any, handler: Handler, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """NumPy takes ``out`` by position too (x.sum(0, None, y))."""
    place = _out_position(func)
    if place is None or len(args) <= place or "out" in _signature(handler).parameters:
        return args, None
    return (*args[:place], *args[place + 1 :]), args[place]


def _bad_arguments(
    recorder: Trace, func: Any, name: str, handler: Handler, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Exception:
    """NumPy's own TypeError where NumPy refuses the arguments too, else which of them is not supported."""
    try:
        bound = inspect.signature(func).bind(*args, **kwargs)
    except TypeError as e:
        return TypeError(f"np.{name}: {e}")
    except ValueError:
        return TypeError(f"np.{name}: arguments do not fit")
    known = _signature(handler).parameters
    unknown = [k for k in bound.arguments if k not in known]
    return UnsupportedError(
        f"np.{name}({', '.join(k + '=' for k in unknown) or '...'}) is not supported in a traced function",
        where=str(recorder.place()),
        fix=f"omit it; np.{name} takes {', '.join(k for k in known if k != 'recorder')} here",
    )


def _unknown(recorder: Trace, func: Any) -> UnsupportedError:
    name = _REFUSED.get(func)
    if name is not None:
        why, fix = REFUSED[name]
        return UnsupportedError(
            f"np.{name} is not supported in a traced function: {why}", where=str(recorder.place()), fix=fix
        )
    module = getattr(func, "__module__", "numpy").replace("numpy", "np")
    full = f"{module}.{func.__name__}"
    near = difflib.get_close_matches(func.__name__, supported_functions(), n=3, cutoff=0.75)
    return UnsupportedError(
        f"{full} is not supported in a traced function",
        where=str(recorder.place()),
        fix=(f"use {', '.join('np.' + n for n in near)}; or " if near else "") + "compute it outside of the "
        "function and pass the result in",
    )


PROTOCOLS = Protocols(
    call_function, functools.partial(ufunc_method, gufuncs=contraction.GUFUNCS), namespace=ArrayNamespace
)
