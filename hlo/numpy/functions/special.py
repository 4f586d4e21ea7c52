"""SciPy's special functions that are ufuncs of elementary functions: rows by name, as those of `elementwise`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.tracer import NP
from shardc.hlo.numpy.values import emit

__all__ = ["SPECIAL_UFUNCS"]


def _xlogy(x: Any, y: Any, log: Any = np.log) -> Any:
    """``x * log(y)``, and 0 where x is 0 and y a number."""
    nothing = NP.logical_and(x == 0, NP.logical_not(NP.isnan(y)))
    return NP.where(nothing, x.dtype.type(0), x * log(NP.where(nothing, x.dtype.type(1), y)))


def _entr(x: Any) -> Any:
    return NP.where(x < 0, x.dtype.type(-np.inf), -_xlogy(x, x))


def _rel_entr(x: Any, y: Any) -> Any:
    inside, zero = NP.logical_and(x > 0, y > 0), NP.logical_and(x == 0, y >= 0)
    one, missing = x.dtype.type(1), NP.logical_or(NP.isnan(x), NP.isnan(y))
    made = x * NP.log(NP.where(inside, x, one) / NP.where(inside, y, one))
    outside = NP.where(zero, x.dtype.type(0), x.dtype.type(np.inf))
    return NP.where(missing, x.dtype.type(np.nan), NP.where(inside, made, outside))


def _huber(delta: Any, r: Any) -> Any:
    size = NP.abs(r)
    made = NP.where(size <= delta, r * r * 0.5, delta * (size - delta * 0.5))
    return NP.where(delta < 0, r.dtype.type(np.inf), made)


SPECIAL_UFUNCS: Mapping[str, Callable[..., Any]] = {
    "expit": lambda x: emit("logistic", x),
    "logit": lambda x: NP.log(x / (1 - x)),
    "log_expit": lambda x: -NP.logaddexp(x.dtype.type(0), -x),
    "erf": lambda x: emit("erf", x),
    "exp10": lambda x: NP.power(x.dtype.type(10), x),
    "xlogy": _xlogy,
    "xlog1py": lambda x, y: _xlogy(x, y, np.log1p),
    "entr": _entr,
    "rel_entr": _rel_entr,
    "kl_div": lambda x, y: _rel_entr(x, y) - x + y,
    "huber": _huber,
}
