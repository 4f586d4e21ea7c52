"""Powers of constant exponents: special values as NumPy has them, and errors of at most four units."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from shardc.compiler.lower.expand.expand_powers import ExpandPowers
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import compiled_results, program

EXPONENTS = (-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2, 3, 4)
SPECIAL = (0.0, -0.0, 1.0, -1.0, -2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, 1e-30, 1e30)


def power(exponent: float, kind: str, size: int, *, squared: bool = False) -> Module:
    base = f"s = {kind}[{size}] multiply(x, x)" if squared else f"s = {kind}[{size}] copy(x)"
    return program(
        f"x = {kind}[{size}] parameter(0)\n{base}\ne = {kind}[] constant({exponent})\n"
        f"w = {kind}[{size}] broadcast(e), dimensions={{}}\nROOT r = {kind}[{size}] power(s, w)"
    )


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("squared", [False, True])
def test_special_values(exponent: float, kind: str, squared: bool) -> None:
    x = np.array(SPECIAL, {"f32": np.float32, "f64": np.float64}[kind])
    module = power(exponent, kind, x.size, squared=squared)
    assert (exponent == -1.5) == any(i.opcode == "power" for i in ExpandPowers().run(module).entry)
    (got,) = compiled_results(module, [x])
    with np.errstate(all="ignore"):
        wanted = np.power(x * x if squared else x, np.full_like(x, exponent))
    np.testing.assert_allclose(got, wanted, rtol=1e-6 if kind == "f32" else 1e-15)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wanted[~np.isnan(wanted)]))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_errors(exponent: float) -> None:
    """Over four octaves, and where f32 ends."""
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(0.25, 4, 20_000), 10.0 ** rng.uniform(-12, 12, 4_000)]).astype(np.float32)
    (got,) = compiled_results(power(exponent, "f32", x.size), [x])
    exact = x.astype(np.float64) ** exponent
    normal = (exact > 1.2e-38) & (exact < 3.4e38)
    errors = np.abs(got - exact)[normal] / np.spacing(exact[normal].astype(np.float32))
    assert errors.max() <= 4, errors.max()


def test_errors_of_doubles() -> None:
    rng = np.random.default_rng(6)
    x = rng.uniform(0.25, 4, 400)
    for exponent in EXPONENTS:
        (got,) = compiled_results(power(exponent, "f64", x.size), [x])
        for a, b in zip(x, got, strict=True):
            exact = mpmath.power(mpmath.mpf(float(a)), exponent)
            assert abs(mpmath.mpf(float(b)) - exact) <= 4 * np.spacing(abs(float(exact)))
