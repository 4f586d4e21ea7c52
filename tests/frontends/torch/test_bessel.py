"""Bessel functions in 64 bits beside mpmath, from the pole to where they turn 50,000 times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np
import pytest

from shardc.frontends.torch.rows.bessel import ROWS

POSITIVE = [1e-300, 1e-12, 9e-9, 1.1e-8, 1e-3, 0.3, 1.0, 3.9, 4.0, 4.1, 7.3, 20.0, 55.5, 300.0, 3e5]
TRUTH: dict[str, Callable[[Any], Any]] = {
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
    "scaled_modified_bessel_k1": lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
    "airy_ai": mpmath.airyai,
}
EVEN_BELOW = ("bessel_j0", "bessel_j1", "airy_ai")


def _values(name: str, at: Any) -> Any:
    with jax.enable_x64(True):
        return np.asarray(ROWS[f"aten.special_{name}"](jax.numpy.asarray(at)))


@pytest.mark.parametrize("name", TRUTH)
def test_values_are_those_of_mpmath(name: str) -> None:
    numbers = [x for x in POSITIVE if x < 1e3 or name != "airy_ai"]
    numbers = [*numbers, *(-x for x in numbers)] if name in EVEN_BELOW else numbers
    with mpmath.workdps(40):
        want = np.array([float(TRUTH[name](mpmath.mpf(x))) for x in numbers])
    np.testing.assert_allclose(_values(name, np.array(numbers)), want, rtol=1e-11)


@pytest.mark.parametrize("name", TRUTH)
def test_ends(name: str) -> None:
    at_zero = {"j0": 1.0, "j1": 0.0, "y0": -np.inf, "y1": -np.inf, "k0": np.inf, "k1": np.inf, "ai": 3 ** (-2 / 3)}
    zero, far, nan, below = _values(name, np.array([0.0, np.inf, np.nan, -2.0]))
    assert zero == pytest.approx(at_zero[name[-2:]] / (1.3541179394264 if name == "airy_ai" else 1.0))
    assert far == 0 and np.isnan(nan) and np.isnan(below) == (name not in EVEN_BELOW)
