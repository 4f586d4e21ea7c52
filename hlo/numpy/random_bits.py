"""Random numbers by position: a function of key, number of the draw and position, hence the same however an array lies.

Philox 4x32 with ten rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; 2011), written in
NumPy, for plain arrays and traced values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["DISTRIBUTIONS", "philox"]

_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ROUNDS = 10


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Four words of 32 random bits, in uint64s, from four and two such words."""
    a, b, c, d = counter
    k, m = key
    for step in range(_ROUNDS):
        if step:
            k, m = (k + _STEPS[0]) & _LOW, (m + _STEPS[1]) & _LOW
        x, y = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (y >> _HALF) ^ b ^ k, y & _LOW, (x >> _HALF) ^ d ^ m, x & _LOW
    return a, b, c, d


def _random_words(state: Any, positions: Any) -> tuple[Any, Any, Any, Any]:
    """The words at ``positions`` (uint64) of the draw that ``state`` (uint64[2]: key, number of the draw) begins."""
    key, draw = state[0], state[1]
    counter = positions & _LOW, positions >> _HALF, (draw & _LOW) + positions * 0, (draw >> _HALF) + positions * 0
    return philox(counter, (key & _LOW, key >> _HALF))


def _fraction(high: Any, low: Any, dtype: Any) -> Any:
    """A float in [0, 1) of 53 bits, or 24."""
    if np.dtype(dtype) == np.float32:
        return (high >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    return ((high >> np.uint64(5)) * np.uint64(1 << 26) + (low >> np.uint64(6))).astype(np.float64) * 2.0**-53


def _uniform(state: Any, positions: Any, dtype: Any) -> Any:
    a, b, _, _ = _random_words(state, positions)
    return _fraction(a, b, dtype)


def _exponential(state: Any, positions: Any, dtype: Any) -> Any:
    return -np.log1p(-_uniform(state, positions, dtype))


def _normal(state: Any, positions: Any, dtype: Any) -> Any:
    """By Box and Muller."""
    a, b, c, d = _random_words(state, positions)
    one = np.dtype(dtype).type(1)
    radius = np.sqrt(np.dtype(dtype).type(-2) * np.log(one - _fraction(a, b, dtype)))
    return radius * np.cos(np.dtype(dtype).type(2 * np.pi) * _fraction(c, d, dtype))


def _bits(state: Any, positions: Any, dtype: Any) -> Any:
    a, b, _, _ = _random_words(state, positions)
    return ((a << _HALF) | b).astype(dtype)


#: By name: ``draw(state, positions, dtype)``, elementwise.
DISTRIBUTIONS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "bits": _bits,
    "exponential": _exponential,
    "normal": _normal,
    "uniform": _uniform,
}
