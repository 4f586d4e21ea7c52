"""Bessel functions, by one integral of Gauss's kind.

With ``z = c w`` and ``c^2 = 1/2`` or ``i/2``, the integral of ``exp(-x w^2) cosh(2 nu asinh(z)) 2 c / sqrt(1 + z^2)``
over all ``w > 0`` is ``exp(x) K_nu(x)``, or ``H_nu(x)`` but for a factor: it is the integral along the path of steepest
descent. With ``w = sinh(v)`` the function falls so fast, and is smooth so far from the real axis, that a sum over equal
steps of ``v`` is right to 13 digits. Below `_LEAST`, the first terms of the power series are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["ROWS"]

Row = Callable[..., Any]

#: How many steps, the exponent behind the last one, and the least argument for which these are enough.
_STEPS, _EXPONENT, _LEAST = 96, 38.0, 1e-8


def _integral(x: Any, nu: float, c: complex) -> Any:
    """The integral for numbers of 64 bits above `_LEAST`."""
    step = jnp.arcsinh(jnp.sqrt(_EXPONENT / x)) / _STEPS

    def term(k: Any, total: Any) -> Any:
        v = step * k
        w = jnp.sinh(v)
        z = c * w
        made = jnp.exp(-x * w * w) * jnp.cosh(2 * nu * jnp.arcsinh(z)) / jnp.sqrt(1 + z * z) * jnp.cosh(v)
        return total + made * jnp.where(k == 0, 0.5, 1.0)

    start = jnp.zeros(x.shape, jnp.float64 if isinstance(c, float) else jnp.complex128)
    return lax.fori_loop(0, _STEPS + 1, term, start) * step * 2 * c


def _macdonald(x: Any, nu: float) -> Any:
    """exp(x) K_nu(x) for x > 0."""
    return _integral(x, nu, math.sqrt(0.5))


def _hankel(x: Any, nu: float) -> Any:
    """H_nu(x) of the first kind for x > 0: J_nu(x) + i Y_nu(x)."""
    phase = jnp.exp(1j * x) * np.exp(-0.5j * np.pi * nu)
    return _integral(x, nu, complex(0.5, 0.5)) * phase * (-2j / np.pi)


def _series(x: Any, nu: int) -> Any:
    """J_nu(x) for |x| <= 4 by its power series, which loses nothing near zero."""
    half = jnp.square(jnp.minimum(x, 4.0) / 2)
    term = total = jnp.ones_like(x) if nu == 0 else jnp.minimum(x, 4.0) / 2
    for k in range(1, 24):
        term = -term * half / (k * (k + nu))
        total = total + term
    return total


def _real(function: Row) -> Row:
    """``function`` of numbers in 64 bits, which are rounded to the type of the argument."""

    def row(x: Any) -> Any:
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.float32
        return function(x.astype(jnp.float64)).astype(dtype)

    return row


def _positive(x: Any) -> Any:
    """``x`` where the integral has its value, and 1 elsewhere."""
    return jnp.where((x > _LEAST) & (x < jnp.inf), x, 1.0)


def _bessel_j(nu: int) -> Row:
    def row(x: Any) -> Any:
        size = jnp.abs(x)
        made = jnp.where(size <= 4, _series(size, nu), jnp.real(_hankel(_positive(size), nu)))
        made = jnp.where(size == jnp.inf, 0.0, made)
        made = jnp.where(jnp.isnan(x), x, made)
        return jnp.where(x < 0, -made, made) if nu % 2 else made

    return row


def _bessel_y(nu: int) -> Row:
    return lambda x: _with_pole(x, jnp.imag(_hankel(_positive(x), nu)), -2 / np.pi, nu)


def _bessel_k(nu: int, scaled: bool) -> Row:
    def row(x: Any) -> Any:
        made, near = _macdonald(_positive(x), nu), jnp.exp(jnp.minimum(x, _LEAST)) if scaled else 1.0
        return _with_pole(x, made if scaled else made * jnp.exp(-_positive(x)), near, nu)

    return row


def _with_pole(x: Any, made: Any, factor: Any, nu: int) -> Any:
    """``made`` with what is beside the pole at zero, ``factor`` times -log(x) or 1 / x; there is no value below."""
    near = jnp.maximum(x, 0.0)
    made = jnp.where(near <= _LEAST, factor * (-(jnp.log(near / 2) + np.euler_gamma) if nu == 0 else 1 / near), made)
    made = jnp.where(x == jnp.inf, 0.0, made)
    return jnp.where((x < 0) | jnp.isnan(x), jnp.nan, made)


def _airy(x: Any) -> Any:
    """Ai(x): functions of the order 1/3 at 2/3 |x|^(3/2)."""
    at = 2 / 3 * jnp.abs(x) * jnp.sqrt(jnp.abs(x))
    inside, factor = _positive(at), jnp.sqrt(jnp.abs(x) / 3)
    above = factor / np.pi * _macdonald(inside, 1 / 3) * jnp.exp(-inside)
    below = factor * jnp.real(_hankel(inside, 1 / 3) * np.exp(1j * np.pi / 6))
    at_zero = 3 ** (-2 / 3) / math.gamma(2 / 3) - 3 ** (-1 / 3) / math.gamma(1 / 3) * x
    made = jnp.where(at <= _LEAST, at_zero, jnp.where(x > 0, above, below))
    made = jnp.where(jnp.abs(x) == jnp.inf, 0.0, made)
    return jnp.where(jnp.isnan(x), x, made)


_TABLE: dict[str, Row] = {
    "airy_ai": _airy,
    "bessel_j0": _bessel_j(0),
    "bessel_j1": _bessel_j(1),
    "bessel_y0": _bessel_y(0),
    "bessel_y1": _bessel_y(1),
    "modified_bessel_k0": _bessel_k(0, scaled=False),
    "modified_bessel_k1": _bessel_k(1, scaled=False),
    "scaled_modified_bessel_k0": _bessel_k(0, scaled=True),
    "scaled_modified_bessel_k1": _bessel_k(1, scaled=True),
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {f"aten.special_{k}": _real(f) for k, f in _TABLE.items()} | {
    "prims.bessel_j0": _real(_bessel_j(0)),
    "prims.bessel_j1": _real(_bessel_j(1)),
}
