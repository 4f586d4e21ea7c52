"""Several reductions of a whole array read it once; variances and first extremes are what NumPy finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.compiler.lower.lowered import KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.lower.simplify.split_reductions import SplitReductions
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import compiled_results, program

N = 1 << 19


def nine(x: Any) -> Any:
    """Eight that reduce, and a running total."""
    own = np.sum(x), np.min(x), np.max(x), np.mean(x), np.var(x), np.sqrt(np.sum(x * x)), np.argmax(x), np.any(x > 3)
    return *own, np.cumsum(x)


def of_numpy(function: Callable[[Any], Any], x: Any) -> Module:
    return shardc.trace(function, x).module


def of_jax(function: Callable[[Any], Any], x: Any) -> Module:
    return shardc.from_jax(jax.jit(function), jax.ShapeDtypeStruct(x.shape, x.dtype)).module


def samples(dtype: str = "f8") -> Any:
    return np.random.default_rng(8).standard_normal(N).astype(dtype)


def test_eight_reductions_read_the_array_once() -> None:
    x = samples()
    module = of_numpy(nine, x)
    reading = [
        s.instruction
        for s in leaf_steps(lower(module).steps)
        if isinstance(s, KernelStep) and any(o.shape.size == N for o in s.instruction.operands)
    ]
    assert sorted(i.opcode for i in reading) == ["fusion", "reduce-window"]
    for got, wanted in zip(compiled_results(module, [x]), nine(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize(("make", "dtype"), [(of_numpy, "f4"), (of_numpy, "f8"), (of_jax, "f4")])
def test_variances_far_from_zero(make: Callable[..., Module], dtype: str) -> None:
    """No digits are lost where the mean is large beside the spread, and it varies from part to part."""
    numpy = np if make is of_numpy else jnp
    x = (samples(dtype) + 1e3 + np.linspace(-5, 5, N)).astype(dtype)
    module = make(lambda x: (numpy.var(x), numpy.std(x, ddof=1)), x)
    exact = x.astype(np.float64)
    got = compiled_results(module, [x])
    np.testing.assert_allclose(got, [np.var(exact), np.std(exact, ddof=1)], rtol=2e-5 if dtype == "f4" else 1e-13)


def test_variances_of_what_is_not_finite() -> None:
    for value in (np.inf, np.nan):
        x = samples()
        x[N // 3] = value
        assert np.isnan(compiled_results(of_numpy(np.var, x), [x])[0])


def test_squares_around_another_number_are_added_as_they_are() -> None:
    """Around a maximum, an infinite element makes the sum infinite, not NaN."""
    x = samples()
    x[5] = -np.inf
    (got,) = compiled_results(of_numpy(lambda x: np.sum((x - np.max(x)) ** 2), x), [x])
    assert got == np.inf


def places(dtype: str) -> list[Any]:
    x = np.round(samples("f8") * 2).astype(dtype)
    found = [x, np.zeros(N, dtype), np.arange(N).astype(dtype), np.arange(N)[::-1].astype(dtype)]
    if np.dtype(dtype).kind == "f":
        some = x.copy()
        some[[N - 3, N // 2, N // 2 + 7]] = np.nan
        found += [
            some,
            np.full(N, -np.inf, dtype),
            np.full(N, np.nan, dtype),
            np.where(x == 0, -0.0, 0.0).astype(dtype),
        ]
    return found


@pytest.mark.parametrize(
    ("make", "dtype"), [*[(of_numpy, d) for d in ("f4", "f8", "i4", "u1")], *[(of_jax, d) for d in ("f4", "i4", "u1")]]
)
def test_the_first_extreme_is_found(make: Callable[..., Module], dtype: str) -> None:
    numpy = np if make is of_numpy else jnp
    module = make(lambda x: (numpy.argmax(x), numpy.argmin(x)), np.zeros(N, dtype))
    assert any(i.opcode == "reduce" and i.shape.is_tuple for i in module.instructions())
    split = SplitReductions().run(module)
    assert not any(i.opcode == "reduce" and i.shape.is_tuple for i in split.instructions())
    for x in places(dtype):
        wanted = np.argmax(x), np.argmin(x)
        np.testing.assert_array_equal(compiled_results(module, [x]), wanted)
        np.testing.assert_array_equal(evaluate(split, [x]), wanted)


@pytest.mark.parametrize("what", ["compare(p, r), direction=GE", "compare(r, p), direction=GT, type=TOTALORDER"])
def test_other_pairs_are_reduced_in_their_order(what: str) -> None:
    module = program(
        "x = f32[524288] parameter(0)\ni = s32[524288] iota(), iota_dimension=0\nz = f32[] constant(-inf)\n"
        "n = s32[] constant(0)\nROOT r = (f32[], s32[]) reduce(x, i, z, n), dimensions={0}, to_apply=f",
        "f {\np = f32[] parameter(0)\nq = s32[] parameter(1)\nr = f32[] parameter(2)\ns = s32[] parameter(3)\n"
        f"k = pred[] {what}\nv = f32[] select(k, p, r)\nw = s32[] select(k, q, s)\n"
        "ROOT t = (f32[], s32[]) tuple(v, w)\n}",
    )
    assert SplitReductions().run(module) is module
