"""Sums of partial scalars: one reduction for all of them, whatever the sum begins with and whatever plans it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import P

jax = pytest.importorskip("jax")
jnp = jax.numpy

PLANS = ("propagated", "auto", "global")


def reductions(f: Callable[..., Any], count: int, plan: str) -> list[int]:
    """The bytes of each collective, and a check of the results."""
    xs = [np.random.default_rng(k).standard_normal((16, 8), np.float32) for k in range(count)]
    program = shardc.from_jax(jax.jit(f), *xs)
    split = program.annotate({n: P("d") for n in program.arg_names}, mesh={"d": 4})
    np.testing.assert_allclose(np.asarray(split.compile()(*xs)), f(*xs), rtol=1e-5)
    return [c["wire_bytes"] for c in split.partition(plan=plan).report()["collectives"]]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("start", [None, 0.0, 2.5])
def test_a_sum_of_losses_is_reduced_once(plan: str, start: float | None) -> None:
    """Python's ``sum`` begins with zero; a number that is added is held by one device until then."""

    def total(*xs: Any) -> Any:
        made = start
        for x in xs:
            made = jnp.sum(x) if made is None else made + jnp.sum(x)
        return made

    assert reductions(total, 5, plan) == [6]


@pytest.mark.parametrize("plan", PLANS)
def test_the_norm_of_many_arrays_is_reduced_once(plan: str) -> None:
    def norm(*xs: Any) -> Any:
        return jnp.sqrt(sum(jnp.sum(x * x) for x in xs))

    assert reductions(norm, 4, plan) == [6]


def test_a_whole_plan_sends_no_more_than_a_careful_one() -> None:
    """The cheapest plans repeat arithmetic, which none may: the next ones are sought, and not the program without."""

    def step(weights: list[Any], x: Any) -> Any:
        def loss(ws: list[Any]) -> Any:
            h = x
            for w in ws:
                h = jnp.tanh(h @ w)
            return jnp.sum(h)

        found = jax.grad(loss)(weights)
        size = jnp.sqrt(sum(jnp.sum(g * g) for g in found))
        return [g / (size + 1) for g in found]

    shape = jax.ShapeDtypeStruct((16, 16), "float32")
    program = shardc.from_jax(jax.jit(step), [shape] * 3, jax.ShapeDtypeStruct((8, 16), "float32"))
    split = program.annotate({n: P("d") for n in program.arg_names}, mesh={"d": 2})

    def sent(plan: str) -> int:
        return sum(c["wire_bytes"] for c in split.partition(plan=plan).report()["collectives"])

    assert sent("global") <= sent("auto") < sent("propagated")
