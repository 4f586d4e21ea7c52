"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardc.frontends.torch.rows.in_32_bits import in_32_bits, unless_exact

__all__ = ["ROWS"]


def _scaled(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``x + alpha y`` and ``x - alpha y``."""

    def row(x: Any, y: Any, alpha: Any = 1) -> Any:
        return function(x, y if alpha == 1 else y * alpha)

    return row


def _divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode == "trunc":
        whole = jnp.issubdtype(jnp.result_type(x, y), jnp.integer)
        return lax.div(*jnp.broadcast_arrays(*_same_types(x, y))) if whole else jnp.trunc(jnp.true_divide(x, y))
    return jnp.true_divide(x, y)


def _same_types(*values: Any) -> list[Any]:
    """The values as arrays of the type that they have together."""
    dtype = jnp.result_type(*values)
    return [jnp.asarray(v, dtype) for v in values]


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    out = x if low is None else jnp.maximum(x, low)
    return out if high is None else jnp.minimum(out, high)


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function(*(jnp.asarray(v).astype(bool) for v in values))


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of real numbers, in 32 bits for integers."""

    def row(x: Any, *rest: Any) -> Any:
        exact = jnp.issubdtype(x.dtype, jnp.inexact)
        return function(x if exact else x.astype(jnp.float32), *rest)

    return row


def _gelu(x: Any, approximate: str = "none") -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _gelu_backward(gradient: Any, x: Any, approximate: str = "none") -> Any:
    return jax.vjp(lambda v: _gelu(v, approximate), x)[1](gradient)[0]


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return jnp.where(x > 0, x * scale, (jnp.expm1(x * input_scale) * alpha) * scale)


def _round(x: Any, decimals: int = 0) -> Any:
    return jnp.round(x, decimals)


def _softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    return jnp.where(x * beta > threshold, x, jnp.log1p(jnp.exp(jnp.minimum(x * beta, threshold))) / beta)


def _power(x: Any, y: Any) -> Any:
    """Whole numbers to negative powers are 0, but for those of size 1."""
    if not all(jnp.issubdtype(jnp.result_type(v), jnp.integer) for v in (x, y)) or (isinstance(y, int) and y >= 0):
        return jnp.power(x, y)
    x, y = _same_types(x, y)
    negative = jnp.where(x == 1, 1, jnp.where(x == -1, 1 - 2 * (y & 1), 0))
    return jnp.where(y < 0, negative, jnp.power(x, jnp.maximum(y, 0))).astype(x.dtype)


def _sign(x: Any) -> Any:
    """That of NaN is 0."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)
    return jnp.sign(x) if jnp.issubdtype(x.dtype, jnp.number) else x


def _shift(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(*jnp.broadcast_arrays(*_same_types(x, y)))


_UNARY = {
    "abs": jnp.abs,
    "absolute": jnp.abs,
    "angle": jnp.angle,
    "bitwise_not": jnp.bitwise_not,
    "ceil": jnp.ceil,
    "conj_physical": jnp.conj,
    "_conj": jnp.conj,
    "_conj_physical": jnp.conj,
    "resolve_conj": lambda x: x,
    "resolve_neg": lambda x: x,
    "floor": jnp.floor,
    "frac": lambda x: x - jnp.trunc(x),
    "imag": jnp.imag,
    "isfinite": jnp.isfinite,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "isneginf": jnp.isneginf,
    "isposinf": jnp.isposinf,
    "neg": jnp.negative,
    "_neg_view": jnp.negative,
    "real": jnp.real,
    "relu": lambda x: jnp.where(x > 0, x, jnp.where(jnp.isnan(x), x, jnp.zeros_like(x))),
    "round": _round,
    "sgn": _sign,
    "sign": _sign,
    "signbit": lambda x: jnp.signbit(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x < 0,
    "square": jnp.square,
    "trunc": jnp.trunc,
    "fix": jnp.trunc,
}

_REAL = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "lgamma": lax.lgamma,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "sinc": jnp.sinc,
    "sinh": jnp.sinh,
    "special_i0e": jax.scipy.special.i0e,
    "special_i1": jax.scipy.special.i1,
    "special_i1e": jax.scipy.special.i1e,
    "special_ndtri": jax.scipy.special.ndtri,
    "special_zeta": jax.scipy.special.zeta,
    "i0": jax.scipy.special.i0,
    "igamma": jax.scipy.special.gammainc,
    "igammac": jax.scipy.special.gammaincc,
    "sqrt": jnp.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}

#: What rounds once by itself, unless a plain number has to be rounded before.
_ONCE = {
    "add": _scaled(jnp.add),
    "sub": _scaled(jnp.subtract),
    "rsub": lambda x, y, alpha=1: y - x * alpha,
    "mul": jnp.multiply,
    "true_divide": jnp.true_divide,
    "fmod": jnp.fmod,
}

#: What would round more than once.
_MANY = {
    "div": _divide,
    "floor_divide": lambda x, y: _divide(x, y, "floor"),
    "remainder": jnp.remainder,
    "pow": _power,
    "atan2": _real(jnp.arctan2),
    "hypot": jnp.hypot,
    "xlogy": lambda x, y: jnp.where(jnp.isnan(y), y, jnp.where(x == 0, 0, x * jnp.log(jnp.where(x == 0, 1, y)))),
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
    "ldexp": lambda x, y: x * jnp.exp2(y),
    "elu": _elu,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, x * negative_slope),
    "silu": lambda x: x * jax.nn.sigmoid(x),
    "softplus": _softplus,
    "lerp": lambda start, end, weight: jnp.where(
        jnp.abs(weight) < 0.5, start + weight * (end - start), end - (end - start) * (1 - weight)
    ),
    "addcmul": lambda x, a, b, *, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, *, value=1: x + value * a / b,
}

_BINARY = {
    "float_power": jnp.power,
    "maximum": jnp.maximum,
    "max.other": jnp.maximum,
    "min.other": jnp.minimum,
    "minimum": jnp.minimum,
    "fmax": jnp.fmax,
    "fmin": jnp.fmin,
    "copysign": jnp.copysign,
    "nextafter": jnp.nextafter,
    "heaviside": lambda x, y: jnp.where(x == 0, y, (x > 0).astype(x.dtype)),
    "gcd": jnp.gcd,
    "lcm": jnp.lcm,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_left_shift": _shift(jnp.left_shift),
    "bitwise_right_shift": _shift(jnp.right_shift),
    "__lshift__": _shift(jnp.left_shift),
    "__rshift__": _shift(jnp.right_shift),
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}

_OTHER = {
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "hardtanh": lambda x, min_val=-1, max_val=1: _clamp(x, min_val, max_val),
    "where": jnp.where,
    "logical_and": _logical(jnp.logical_and),
    "logical_not": _logical(jnp.logical_not),
    "logical_or": _logical(jnp.logical_or),
    "logical_xor": _logical(jnp.logical_xor),
    "masked_fill": lambda x, mask, value: jnp.where(mask, jnp.asarray(value).astype(x.dtype), x),
    "complex": lambda x, y: lax.complex(*jnp.broadcast_arrays(*_same_types(x, y))),
    "polar": lambda r, angle: lax.complex(r * jnp.cos(angle), r * jnp.sin(angle)),
    "view_as_complex": lambda x: lax.complex(x[..., 0], x[..., 1]),
    "view_as_real": lambda x: jnp.stack([jnp.real(x), jnp.imag(x)], -1),
    "nan_to_num": lambda x, nan=None, posinf=None, neginf=None: jnp.nan_to_num(
        x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf
    ),
}

#: The rows of this family.
ROWS: Mapping[str, Callable[..., Any]] = {
    **{f"aten.{name}": function for name, function in (_UNARY | _BINARY | _OTHER).items()},
    **{f"aten.{name}": function for name, function in unless_exact(_ONCE).items()},
    **{f"aten.{name}": function for name, function in in_32_bits(_MANY).items()},
    **{f"aten.{name}": function for name, function in in_32_bits({k: _real(f) for k, f in _REAL.items()}).items()},
}
