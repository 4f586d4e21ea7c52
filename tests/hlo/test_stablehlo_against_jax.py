"""Functions as JAX lowers them mean the same in our reader and evaluator as in XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import CONTRACTIONS, CONTROL, ELEMENTWISE, GRADIENTS, STRUCTURE, Case, X
from stablehlo_support import compare


def cases(table: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("fn", "args"), [c[1:] for c in table], ids=[c[0] for c in table])


@cases(ELEMENTWISE)
def test_elementwise(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    compare(fn, *args)


@cases(STRUCTURE)
def test_structure(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    compare(fn, *args)


@cases(CONTRACTIONS + CONTROL)
def test_contractions_and_control_flow(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    compare(fn, *args, rtol=1e-4, atol=1e-4)


@cases(GRADIENTS)
def test_gradients(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    compare(fn, *args, rtol=2e-4, atol=2e-4)


def test_random_bits_are_the_same() -> None:
    def draw(key: Any) -> Any:
        a, b = jax.random.split(key)
        return (
            jax.random.bits(a, (5,)),
            jax.random.uniform(b, (3, 4)),
            jax.random.randint(a, (4,), 0, 9),
            jax.random.permutation(b, 6),
            jax.random.key_data(jax.random.fold_in(a, 3)),
        )

    compare(draw, jax.random.key(42))


def test_random_floats() -> None:
    def draw(key: Any) -> Any:
        return jax.random.normal(key, (8,)), jax.random.gumbel(key, (3,)), jax.random.bernoulli(key, 0.3, (9,))

    compare(draw, jax.random.key(3))


def test_other_random_generators() -> None:
    def draw(key: Any) -> Any:
        return jax.random.bits(key, (6,)), lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (3,))

    compare(draw, jax.random.key(0, impl="rbg"))


def test_functions_are_called_not_copied() -> None:
    inner = jax.jit(lambda x: jnp.tanh(x) * 2)
    module = compare(lambda x: inner(inner(x)) + inner(x), X)
    assert [i.opcode for i in module.entry].count("call") == 3
    assert len(module.computations) == 2
