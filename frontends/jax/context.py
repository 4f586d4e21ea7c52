"""What decides, besides its arguments, what a function is traced to: JAX's settings and contexts, static values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, RunError, UnsupportedError
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array

__all__ = ["NotFiniteError", "need_numbers", "static_kind", "trace_context"]


def trace_context() -> Any:
    """JAX's settings and context managers as they are now, to be compared with ``==``: what its own caches of traced
    functions go by (types, promotion, precision, random bits, meshes, default device, the user's own contexts)."""
    return _reader()()


@functools.cache
def _reader() -> Callable[[], Any]:
    import jax
    from jax._src import config

    found: Callable[[], Any] | None = getattr(config, "trace_context", None)
    if found is None:
        raise UnsupportedError(
            f"JAX {jax.__version__} does not expose its tracing settings",
            fix="compile once for these argument types: shardc.from_jax(jax.jit(f), *args).compile()",
        )
    return found


def static_kind(name: str, value: Any) -> Hashable:
    """What tells a static argument called ``name`` from all that a function may treat otherwise: types count as well
    as values (1, 1.0 and True are equal), inside of tuples too, and so does the sign of zero."""
    if isinstance(value, tuple):
        return type(value), tuple(static_kind(name, v) for v in value)
    if isinstance(value, float | complex | np.inexact):
        return type(value), repr(value)
    try:
        hash(value)
    except TypeError as e:
        raise InputError(
            f"a static argument must be hashable, but {kind_text(value)} is not: {e}",
            where=f"argument {name}",
            fix="pass a tuple or a frozen dataclass, or trace the argument",
        ) from None
    return type(value), value


class NotFiniteError(RunError, FloatingPointError):
    """A result has an element that JAX was told to look for."""


def need_numbers(results: Sequence[Array]) -> None:
    """Raise where this process's shards have a NaN or an infinity and JAX is set to ``jax_debug_nans`` or
    ``jax_debug_infs``; other ranks look at theirs."""
    settings = _settings()
    if settings.jax_debug_nans or settings.jax_debug_infs:
        _look_for("NaN", np.isnan, results if settings.jax_debug_nans else ())
        _look_for("infinite", np.isinf, results if settings.jax_debug_infs else ())


@functools.cache
def _settings() -> Any:
    import jax

    return jax.config


def _look_for(word: str, is_it: Callable[[Any], Any], results: Sequence[Array]) -> None:
    for number, array in enumerate(results):
        for shard in array.addressable_shards:
            if is_it(shard.data).any():
                raise NotFiniteError(
                    f"result {array.name or number} has elements that are {word}",
                    where=f"device {shard.device}",
                    fix="call the function with jax.jit to find the operation, or switch off jax_debug_nans and "
                    "jax_debug_infs",
                )
