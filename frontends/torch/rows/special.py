"""Functions of numbers that JAX has no name for: polynomials by their recurrences, digamma at its poles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits

__all__ = ["ROWS"]

Row = Callable[..., Any]


def _wide(x: Any) -> Any:
    return x if jnp.issubdtype(jnp.result_type(x), jnp.inexact) else jnp.asarray(x, jnp.float32)


def _polynomial(first: Row, following: Callable[[Any, Any, Any, Any], Any], map_x: Row = lambda x: x) -> Row:
    """Polynomials 1, ``first(x)`` and then ``following(k, x, p_k, p_{k-1})``; 0 for negative degrees."""

    def row(x: Any, n: Any) -> Any:
        x = map_x(_wide(x))
        known = isinstance(n, (int, float, np.number))
        degree = jnp.asarray(n).astype(jnp.int32)
        x, degree = jnp.broadcast_arrays(x, degree)
        before, now = jnp.ones_like(x), first(x)
        out = jnp.where(degree == 0, before, jnp.where(degree == 1, now, 0))

        def step(k: Any, carried: Any) -> Any:
            before, now, out = carried
            after = following(k.astype(x.dtype), x, now, before).astype(x.dtype)
            return now, after, jnp.where(degree == k + 1, after, out)

        last = max(int(n), 1) if known else jnp.max(degree, initial=1)
        return lax.fori_loop(1, last, step, (before, now, out))[2]

    return row


def _chebyshev(first: Row, shifted: bool) -> Row:
    map_x: Row = (lambda x: 2 * x - 1) if shifted else (lambda x: x)
    return _polynomial(first, lambda k, x, p, q: 2 * x * p - q, map_x)


def _digamma(x: Any) -> Any:
    x = _wide(x)
    wide = jnp.where(x == 0, 1, x).astype(jnp.float64)  # beside a pole, 32 bits lose the distance
    made = jax.scipy.special.digamma(wide)
    made = jnp.where((x < 0) & (x == jnp.trunc(x)), jnp.nan, made)
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x), made).astype(x.dtype)


def _polygamma(n: int, x: Any) -> Any:
    """Of order above 0 by the reflection-free sum: values up to 16 terms, then the zeta function."""
    x = _wide(x)
    if n == 0:
        return _digamma(x)
    factorial = float(np.prod(np.arange(1, n + 1, dtype=np.float64)))
    return ((-1.0) ** (n + 1) * factorial * _zeta(float(n + 1), x)).astype(x.dtype)


def _zeta(s: float, x: Any) -> Any:
    """sum 1 / (x + k)^s for all k >= 0, for negative x too where ``s`` is whole."""
    at = x.astype(jnp.float64)
    power = int(s)
    ahead = jnp.maximum(jnp.ceil(-at) + 1, 0)
    start = at + ahead
    total = jax.scipy.special.zeta(s, jnp.where(start > 0, start, 1))

    def step(k: Any, total: Any) -> Any:
        return total + jnp.where(k < ahead, (at + k) ** -power, 0)

    return lax.fori_loop(0, jnp.max(ahead, initial=0).astype(jnp.int32), step, total)


def _log_ndtr(x: Any) -> Any:
    x = _wide(x)
    return jax.scipy.special.log_ndtr(x.astype(jnp.float64)).astype(x.dtype)


def _erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x): by the logarithm of erfc, and by the asymptotic series where that would cancel."""
    x = _wide(x)
    wide = x.astype(jnp.float64)
    near = jnp.minimum(wide, 50.0)
    made = 2 * jnp.exp(near * near + jax.scipy.special.log_ndtr(-np.sqrt(2.0) * near))
    far = jnp.maximum(wide, 50.0)
    square = far * far
    series = (1 - (1 - (1.5 - 3.75 / square) / square) / (2 * square)) / (far * np.sqrt(np.pi))
    return jnp.where(wide > 50.0, series, made).astype(x.dtype)


def _frexp(x: Any) -> tuple[Any, Any]:
    fraction, exponent = jnp.frexp(x)
    return fraction, exponent.astype(jnp.int32)


_TABLE: dict[str, Row] = {
    "digamma": _digamma,
    "polygamma": _polygamma,
    "special_chebyshev_polynomial_t": _chebyshev(lambda x: x, False),
    "special_chebyshev_polynomial_u": _chebyshev(lambda x: 2 * x, False),
    "special_chebyshev_polynomial_v": _chebyshev(lambda x: 2 * x - 1, False),
    "special_chebyshev_polynomial_w": _chebyshev(lambda x: 2 * x + 1, False),
    "special_shifted_chebyshev_polynomial_t": _chebyshev(lambda x: x, True),
    "special_shifted_chebyshev_polynomial_u": _chebyshev(lambda x: 2 * x, True),
    "special_shifted_chebyshev_polynomial_v": _chebyshev(lambda x: 2 * x - 1, True),
    "special_shifted_chebyshev_polynomial_w": _chebyshev(lambda x: 2 * x + 1, True),
    "special_hermite_polynomial_h": _polynomial(lambda x: 2 * x, lambda k, x, p, q: 2 * (x * p - k * q)),
    "special_hermite_polynomial_he": _polynomial(lambda x: x, lambda k, x, p, q: x * p - k * q),
    "special_laguerre_polynomial_l": _polynomial(
        lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    "special_legendre_polynomial_p": _polynomial(
        lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
    "special_erfcx": _erfcx,
    "special_log_ndtr": _log_ndtr,
    "special_modified_bessel_i0": lambda x: jax.scipy.special.i0(_wide(x)),
    "special_modified_bessel_i1": lambda x: jax.scipy.special.i1(_wide(x)),
}

_PRIMS: dict[str, Row] = {
    "erfcx": _erfcx,
    "spherical_bessel_j0": lambda x: jnp.sinc(_wide(x) / np.pi),
}

#: The rows of this family.
ROWS: Mapping[str, Row] = {
    **{f"aten.{k}": f for k, f in in_32_bits(_TABLE).items()},
    **{f"prims.{k}": f for k, f in in_32_bits(_PRIMS).items()},
    "aten.frexp": _frexp,
    "prims.frexp": _frexp,
}
