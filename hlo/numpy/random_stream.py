"""`RandomStream`: a random generator that a traced function may take as an argument, or make."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, Location, UnsupportedError
from shardc.hlo.numpy.random_bits import DISTRIBUTIONS
from shardc.hlo.numpy.recorder import Scope, Trace, current_trace, user_line
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.values import constant, iota

__all__ = ["RandomStream", "draw"]


def draw(name: str, state: Any, dims: tuple[int, ...], dtype: Any) -> Any:
    """An array of random numbers, traced, on ``state``: a traced uint64[2] of key and number of the draw."""
    recorder = state.recorder
    positions: Any = iota(recorder, dims, len(dims) - 1, np.uint64) if dims else constant(recorder, 0, np.uint64)
    for d in range(len(dims) - 1):
        along: Any = iota(recorder, dims, d, np.uint64)
        positions = positions + along * np.uint64(math.prod(dims[d + 1 :]))
    return DISTRIBUTIONS[name](state, positions, dtype)


class RandomStream:
    """Random numbers as NumPy's ``Generator`` gives them, of its own: each draw is a function of the seed, of how many
    draws there were before, and of the position in the array. So it is the same on every mesh.

    ``state`` is uint64[2]: key, and the number of the next draw. A traced function takes a stream as an argument, and
    the caller's goes on behind what the function has drawn.
    """

    def __init__(self, state: Any) -> None:
        self._state: Any = state if isinstance(state, Tracer) else np.asarray(state, np.uint64)
        self._scope = _scope_of(state.recorder if isinstance(state, Tracer) else current_trace())
        #: Draws since it was made.
        self.drawn = 0

    def __getattr__(self, name: str) -> Any:
        if hasattr(np.random.Generator, name):
            own = ", ".join(n for n in vars(RandomStream) if not n.startswith("_") and hasattr(np.random.Generator, n))
            raise AttributeError(
                f"generators of sharded arrays have no {name}, only {own}; make other numbers with numpy.random, "
                "the same on every rank, and pass them to shardc.numpy.array"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def state(self) -> Any:
        """Key and number of the next draw."""
        return self._state + np.array([0, self.drawn], np.uint64)

    def skip(self, draws: int) -> None:
        """Skip this many draws.

        >>> rng, other = np.random.default_rng(0), np.random.default_rng(0)
        >>> _ = other.random((64,), mesh=mesh)
        >>> rng.skip(1)
        >>> rng.state.tolist() == other.state.tolist()
        True
        """
        self.drawn += draws

    def _draw(self, name: str, size: Any, dtype: Any, options: dict[str, Any]) -> Any:
        dims = () if size is None else _dims(size)
        unknown = next((option for option in options if option not in ("sharding", "mesh")), None)
        if unknown is not None:
            fix = "omit it; draws take sharding= and mesh= besides NumPy's own size= and dtype="
            raise UnsupportedError(f"draws of sharded arrays take no {unknown}=", where=f"random.{name}", fix=fix)
        recorder = current_trace()
        if _scope_of(recorder) is not self._scope:
            raise InputError(
                "a traced function, loop or branch draws from a random generator that was made outside of it: "
                "its numbers would be the same every time",
                where=Location(*user_line()),
                fix="pass the generator as an argument of the function or as a part of the loop's state: it then "
                "continues where it ended",
            )
        state = self.state
        self.drawn += 1
        if recorder is None:
            return self._place_draw(name, state, dims, np.dtype(dtype), **options)
        traced = state if isinstance(state, Tracer) else constant(recorder, state)
        with recorder.call(f"random.{name}"):
            made = draw(name, traced, dims, np.dtype(dtype))
        return self._constrained(made, **options)

    def _place_draw(self, name: str, state: Any, dims: tuple[int, ...], dtype: np.dtype[Any], **options: Any) -> Any:
        """A draw outside of traced functions: where the array lies is for who has arrays to say."""
        raise UnsupportedError(
            "this generator draws only inside of a traced function", fix="use shardc.numpy.random.default_rng"
        )

    def _constrained(self, made: Any, **options: Any) -> Any:
        del options
        return made

    def random(self, size: Any = None, dtype: Any = np.float64, **options: Any) -> Any:
        """Floats in [0, 1).

        >>> rng.random((64,), "float32", mesh=mesh)
        shardc.Array(f32[64], [{x}])
        """
        return self._draw("uniform", size, dtype, options)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, **options: Any) -> Any:
        """Floats in [low, high), as float64.

        >>> float(rng.uniform(2, 3, (64,), mesh=mesh).min()) >= 2
        True
        """
        return self._draw("uniform", _size(size, low, high), np.float64, options) * (high - low) + low

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, **options: Any) -> Any:
        """Normal floats of mean 0 and standard deviation 1.

        >>> rng.standard_normal((64,), sharding=P("y"), mesh=mesh)
        shardc.Array(f64[64], [{y}])
        """
        return self._draw("normal", size, dtype, options)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, **options: Any) -> Any:
        """Normal floats of mean ``loc`` and standard deviation ``scale``, as float64.

        >>> 9 < float(rng.normal(10, 0.1, (64,), mesh=mesh).mean()) < 11
        True
        """
        return self._draw("normal", _size(size, loc, scale), np.float64, options) * scale + loc

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, **options: Any) -> Any:
        """Floats whose logarithm is normal, as float64.

        >>> float(rng.lognormal(size=(64,), mesh=mesh).min()) > 0
        True
        """
        return np.exp(self.normal(mean, sigma, size, **options))

    def standard_exponential(self, size: Any = None, dtype: Any = np.float64, **options: Any) -> Any:
        """Floats of density exp(-x).

        >>> float(rng.standard_exponential((64,), mesh=mesh).min()) >= 0
        True
        """
        return self._draw("exponential", size, dtype, options)

    def exponential(self, scale: Any = 1.0, size: Any = None, **options: Any) -> Any:
        """Floats of density exp(-x / scale) / scale, as float64.

        >>> float(rng.exponential(2.0, (64,), mesh=mesh).min()) >= 0
        True
        """
        return self._draw("exponential", _size(size, scale), np.float64, options) * scale

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
        **options: Any,
    ) -> Any:
        """Integers in [low, high), or [low, high] with ``endpoint``.

        Each is 64 random bits modulo the interval's size, with a bias below size / 2**64. Raises `ValueError` for an
        empty interval.

        >>> 0 <= int(rng.integers(10, size=(64,), mesh=mesh).max()) < 10
        True
        """
        if np.ndim(low) or np.ndim(high):
            raise UnsupportedError("the bounds of integers() are arrays", where="integers", fix="give two numbers")
        first, last = (0, low) if high is None else (low, high)
        count = operator.index(last) - operator.index(first) + bool(endpoint)
        if count <= 0:
            raise ValueError("low >= high")
        bits = self._draw("bits", size, np.uint64, options)
        return ((bits % np.uint64(count)).astype(np.int64) + first).astype(dtype)

    def permutation(self, x: Any, axis: int = 0, **options: Any) -> Any:
        """``x``, or the integers below ``x``, in random order.

        >>> int(rng.permutation(64, mesh=mesh).sum())
        2016
        """
        count = operator.index(x) if np.ndim(x) == 0 else x.shape[axis]
        order = np.argsort(self._draw("bits", count, np.uint64, options), stable=True)
        return order if np.ndim(x) == 0 else np.take(x, order, axis=axis)

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None, **options: Any) -> Any:
        """Elements of ``a``, or integers below ``a``, with or without repetition, with probabilities ``p``.

        Without repetition, the elements with the smallest exponential draws of rates ``p`` are chosen (Efraimidis and
        Spirakis, Weighted random sampling with a reservoir, 2006). Raises `ValueError` for more elements than there
        are, without repetition, and for numbers that are no probabilities.

        >>> rng.choice(100, (64,), replace=False, mesh=mesh).shape
        (64,)
        >>> int(rng.choice(3, (64,), p=[0.5, 0, 0.5], mesh=mesh).max())
        2
        """
        count = operator.index(a) if np.ndim(a) == 0 else len(a)
        dims = () if size is None else _dims(size)
        if not replace and math.prod(dims) > count:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None:
            _check_probabilities(p, count, 1 if replace else math.prod(dims))
            chosen = self._weighted(p, count, dims, replace, options)
        elif replace:
            chosen = self.integers(count, size=size, **options)
        else:
            chosen = self.permutation(count, **options)[: math.prod(dims)].reshape(dims)
        return chosen if np.ndim(a) == 0 else np.take(a, chosen, axis=0)

    def _weighted(self, p: Any, count: int, dims: tuple[int, ...], replace: bool, options: dict[str, Any]) -> Any:
        if replace:
            limits = np.cumsum(p)
            return np.searchsorted(limits / limits[-1], self.random(dims, **options), side="right")
        times = self.exponential(size=count, **options) / (np.asarray(p) if isinstance(p, list | tuple) else p)
        return np.argsort(times, stable=True)[: math.prod(dims)].reshape(dims)

    def spawn(self, n_children: int) -> list[Any]:
        """Independent generators, which depend on this one's key and number of draws.

        Raises `UnsupportedError` in a traced function.

        >>> len(rng.spawn(2))
        2
        """
        if isinstance(self._state, Tracer):
            raise UnsupportedError("a traced function cannot spawn random generators", fix="spawn outside of it")
        key, draws = (int(v) for v in self.state)
        self.drawn += 1
        made = np.random.SeedSequence((key, draws)).spawn(n_children)
        return [type(self)(np.array([s.generate_state(1, np.uint64)[0], 0], np.uint64)) for s in made]


def _scope_of(recorder: Trace | None) -> Scope | None:
    return None if recorder is None else recorder.scope


def _dims(size: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, size if isinstance(size, Sequence | np.ndarray) else (size,)))


def _check_probabilities(p: Any, count: int, least: int) -> None:
    """Raise NumPy's `ValueError` unless ``p`` has ``count`` probabilities, at least so many of them above zero.

    Of arrays on devices and of traced values only the shape is known.
    """
    if np.shape(p) != (count,):
        raise ValueError(f"a and p must have same size: {count} elements, and p of shape {np.shape(p)}")
    if not isinstance(p, list | tuple | np.ndarray):
        return
    known = np.asarray(p, np.float64)
    if not np.all(known >= 0):
        raise ValueError("Probabilities are not non-negative")
    given = getattr(p, "dtype", known.dtype)
    if abs(math.fsum(known) - 1) > math.sqrt(np.finfo(given if given.kind == "f" else known.dtype).eps):
        raise ValueError("Probabilities do not sum to 1")
    if np.count_nonzero(known) < least:
        raise ValueError("Fewer non-zero entries in p than size")


def _size(size: Any, *parameters: Any) -> Any:
    """The shape of what is drawn: as asked for, or as the parameters are."""
    shapes = [np.shape(p) for p in parameters]
    return np.broadcast_shapes(*shapes) if size is None and any(shapes) else size
