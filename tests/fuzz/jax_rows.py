"""How rows of the tables of operations are made: what they draw, and how exact their results are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax_drawer import Drawer
from jax_terms import Op, Step, Value, is_float

__all__ = [
    "Fits",
    "binary",
    "broadcasts",
    "exactly",
    "full",
    "is_complex",
    "keep",
    "numeric",
    "ranked",
    "real",
    "rounded",
    "shaped",
    "smooth",
    "unary",
]

Fits = Callable[[Value], bool]


def numeric(v: Value) -> bool:
    return v.dtype != "bool"


def real(v: Value) -> bool:
    return numeric(v) and not is_complex(v)


def is_complex(v: Value) -> bool:
    return v.dtype.startswith("complex")


def ranked(rank: int) -> Fits:
    return lambda v: len(v.shape) >= rank


def full(v: Value) -> bool:
    """At least one dimension, and elements."""
    return len(v.shape) >= 1 and v.size > 0


def keep(values: list[Value], step: Step) -> tuple[bool, float]:
    """As exact and as large as the operands."""
    return all(v.exact for v in values), max(v.bound for v in values)


def exactly(bound: float) -> Callable[[list[Value], Step], tuple[bool, float]]:
    return lambda values, step: (True, bound)


def rounded(bound: float) -> Callable[[list[Value], Step], tuple[bool, float]]:
    return lambda values, step: (False, bound)


def unary(function: Callable[[Any], Any], fits: Fits, result: Any = keep, limit: float = np.inf) -> Op:
    def draw(d: Drawer) -> Step | None:
        i = d.pick(fits)
        return None if i is None else Step(d.name, (d.tamed(i, limit),))

    return Op(draw, lambda context, step, x: function(x), result)


def smooth(function: Callable[[Any], Any], bound: float, limit: float = 4.0) -> Op:
    return unary(function, is_float, rounded(bound), limit)


def binary(function: Callable[[Any, Any], Any], fits: Fits, result: Any = keep, limit: float = np.inf) -> Op:
    """Of two values of one type whose shapes broadcast."""

    def draw(d: Drawer) -> Step | None:
        i = d.pick(fits)
        if i is None:
            return None
        a = d.values[i]
        j = d.pick(lambda b: b.dtype == a.dtype and fits(b) and broadcasts(a.shape, b.shape))
        return None if j is None else Step(d.name, (d.tamed(i, limit), d.tamed(j, limit)))

    return Op(draw, lambda context, step, x, y: function(x, y), result)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


def shaped(
    draw: Callable[[Any, Drawer, Value], Mapping[str, Any] | None],
    apply: Any,
    fits: Fits = lambda v: len(v.shape) >= 1,
    result: Any = keep,
) -> Op:
    """Of one value, with parameters that depend on its shape."""

    def step(d: Drawer) -> Step | None:
        i = d.pick(fits)
        if i is None:
            return None
        params = draw(d.r, d, d.values[i])
        return None if params is None else Step(d.name, (i,), params)

    return Op(step, lambda context, s, x: apply(x, **s.params), result)
