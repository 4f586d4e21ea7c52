"""JAX functions the whole way: sharded over a 2x2 mesh, compiled to native code, run on virtual devices, against XLA.

A seeded slice by default; every function with `--run-full`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_programs import CONTRACTIONS, CONTROL, ELEMENTWISE, GRADIENTS, STRUCTURE, Case

from shardc import Mesh, P
from shardc.stages.programs import from_jax
from shardc.stages.stages import Program

MESH = Mesh({"a": 2, "b": 2})
WITHOUT_CPU_CODE = {"fft"}
EVERY: list[Case] = [*ELEMENTWISE, *STRUCTURE, *CONTRACTIONS, *CONTROL, *GRADIENTS]
CASES = [c for c in EVERY if c[0] not in WITHOUT_CPU_CODE]
SLICE = {c[0] for c in CASES[:: len(CASES) // 16]} | {"scan", "attention", "scan of layers", "cross entropy", "scatter"}


def spread(program: Program) -> Program:
    """The last two dimensions of every argument over the mesh, whether they divide or not."""
    specs = {}
    for name, parameter in zip(program.module.arg_names, program.module.parameters, strict=True):
        rank = parameter.shape.rank
        if rank:
            specs[name] = P(*[None] * (rank - 2), *("a", "b")[-min(2, rank) :])
    return program.annotate(specs, mesh=MESH)


def assert_agrees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(ours), np.asarray(theirs)
        assert a.dtype == b.dtype
        if b.dtype.kind in "fcV":
            np.testing.assert_allclose(a.astype(np.complex128), b.astype(np.complex128), rtol=3e-4, atol=3e-4)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("fn", "args"),
    [pytest.param(*c[1:], id=c[0], marks=() if c[0] in SLICE else pytest.mark.full) for c in CASES],
)
def test_sharded_and_compiled(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    program = spread(from_jax(jax.jit(fn, keep_unused=True), *args))
    assert_agrees(program.compile()(*args), jax.jit(fn)(*args))


def test_random_keys_in_and_out() -> None:
    def draw(key: Any) -> Any:
        first, second = jax.random.split(key)
        return jax.random.normal(first, (8,)), second

    key = jax.random.key(3)
    found, key_out = from_jax(draw, key).compile()(key)
    expected, expected_key = draw(key)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)
    assert key_out.dtype == expected_key.dtype
    np.testing.assert_array_equal(jax.random.key_data(key_out), jax.random.key_data(expected_key))


def test_mixed_precision_step() -> None:
    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return ((x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2).mean()

        return jax.value_and_grad(loss)(w)

    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((12, 16)).astype(np.float32)
    program = from_jax(step, w, x).annotate({"w": P("a", "b"), "x": P("a", None)}, mesh=MESH)
    found, expected = program.compile()(w, x), jax.jit(step)(w, x)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=3e-2, atol=3e-2)
