"""Short dimensions that values have only on the way: no kernel keeps such a value, and results agree with JAX's."""

from __future__ import annotations

import random as draws
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.compiler.lower.lowered import KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import PASSES, lower
from shardc.compiler.lower.simplify.split_components import SplitComponents
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import run_pipeline
from tests.compiler.checking import assert_close, check, compiled_results, program, random_arguments

N, M = 97, 101


def acceleration(x: jax.Array, mass: jax.Array) -> jax.Array:
    away = x[None, :, :] - x[:, None, :]
    inverse = ((away**2).sum(axis=2) + 0.05) ** -1.5
    return (away * (mass * inverse)[:, :, None]).sum(axis=1)


def distances(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))


def farthest(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.abs(x[:, None] - y[None]).max(-1).min(1)


def energy(x: jax.Array, w: jax.Array) -> jax.Array:
    return ((x[None] - x[:, None]) * w[:, :, None]).max((1, 2)).sum()


def of_each_class(kind: jax.Array, value: jax.Array) -> jax.Array:
    return jnp.where(kind[:, None] == jnp.arange(5), value[:, None], 0.0).sum(0)


def stack(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    field = jnp.stack([a, b, a * b, a - b], axis=0)
    return field.sum(0), field[1] / field[2:].sum(0)


#: Functions, shapes of their arguments, and the size of the largest array that a kernel may make.
CASES = {
    acceleration: (((N, 3), (N,)), 3 * N),
    distances: (((N, 4), (M, 4)), N * M),
    farthest: (((N, 2), (M, 2)), 2 * M),
    energy: (((N, 3), (N, N)), 3 * N),
    of_each_class: (((1 << 13,), (1 << 13,)), 5),
    stack: (((N, M), (N, M)), N * M),
}


def from_jax(f: Callable[..., object]) -> Module:
    return shardc.from_jax(jax.jit(f), *(jax.ShapeDtypeStruct(s, np.float32) for s in CASES[f][0])).module


def largest(module: Module) -> int:
    """Elements of the largest array that a kernel makes."""
    steps = [s for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)]
    return max(leaf.size for s in steps for leaf in s.instruction.shape.leaves())


@pytest.mark.parametrize("f", CASES)
def test_no_array_with_the_short_dimension_is_made(f: Callable[..., object]) -> None:
    module = from_jax(f)
    assert largest(module) <= CASES[f][1]
    args = random_arguments(module, 3)
    if f is of_each_class:
        args[0] = np.floor(np.abs(args[0]) * 3).astype(np.float32)
    got = compiled_results(module, args)
    assert_close(got, evaluate(module, args))
    assert_close(got, [np.asarray(a) for a in jax.tree.leaves(jax.jit(f)(*args))])


def test_of_two_short_dimensions_the_one_that_is_added_up_is_split() -> None:
    """Components along the other one would be put together again: twice the memory."""

    def nearest(x: jax.Array, centres: jax.Array) -> tuple[jax.Array, jax.Array]:
        distance = ((x[:, None] - centres[None]) ** 2).sum(-1)
        return jnp.argmin(distance, 1), distance.min(1)

    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((1 << 10, 8), (16, 8))]
    module = shardc.from_jax(jax.jit(nearest), *shapes).module
    steps = [s for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)]
    assert all(i.opcode != "concatenate" for s in steps for i in s.instruction.attrs.get("calls", (s.instruction,)))
    args = random_arguments(module, 3)
    assert_close(compiled_results(module, args), evaluate(module, args))


@pytest.mark.parametrize("kind", ["f64", "s32", "u8", "bf16", "c64"])
@pytest.mark.parametrize("op", ["add", "maximum", "multiply"])
def test_types(kind: str, op: str) -> None:
    """Those that add up in wider registers keep their reductions."""
    if kind == "c64" and op != "add":
        pytest.skip("no order of complex numbers, and no free order of their products")
    one = "(1, 0)" if kind == "c64" else "1"
    module = program(
        f"x = {kind}[97,3] parameter(0)\ny = {kind}[101,3] parameter(1)\nz = {kind}[] constant({one})\n"
        f"a = {kind}[97,101,3] broadcast(x), dimensions={{0,2}}\n"
        f"b = {kind}[97,101,3] broadcast(y), dimensions={{1,2}}\n"
        f"d = {kind}[97,101,3] multiply(a, b)\nROOT r = {kind}[97,101] reduce(d, z), dimensions={{2}}, to_apply=f",
        f"f {{\na = {kind}[] parameter(0)\nb = {kind}[] parameter(1)\nROOT c = {kind}[] {op}(a, b)\n}}",
    )
    changed = SplitComponents().run(module) is not module
    assert changed == (kind in ("f64", "s32", "c64"))
    check(module, tolerance=2e-2 if kind == "bf16" else 2e-5)


def test_zeros_keep_their_signs() -> None:
    """A sum that starts at 0 is not -0, one that starts at -0 is."""
    module = program(
        "x = f32[97,3] parameter(0)\nzero = f32[] constant(0)\nminus = f32[] constant(-0)\n"
        "one = f32[] constant(1)\na = f32[97,101,3] broadcast(x), dimensions={0,2}\n"
        "b = f32[97,101,3] broadcast(one), dimensions={}\nd = f32[97,101,3] multiply(a, b)\n"
        "p = f32[97,101] reduce(d, zero), dimensions={2}, to_apply=sum\n"
        "q = f32[97,101] reduce(d, minus), dimensions={2}, to_apply=sum\n"
        "ROOT r = (f32[97,101], f32[97,101]) tuple(p, q)"
    )
    assert SplitComponents().run(module) is not module
    plus, minus = compiled_results(module, [np.full((97, 3), -0.0, np.float32)])
    assert np.signbit(minus).all() and not np.signbit(plus).any()


def test_what_is_needed_whole_stays() -> None:
    """A value that is a result, an argument, or read by more than arithmetic is made as it was written."""

    def result(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        d = x[None] - x[:, None]
        return d, (d * d).sum(-1)

    def argument(x: jax.Array, y: jax.Array) -> jax.Array:
        return ((x[None] - y) ** 2).sum(-1)

    def sort(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        d = x[None] - x[:, None]
        return jnp.sort(d, axis=1)[:, 0], d.sum(-1)

    points, pairs = (jax.ShapeDtypeStruct(s, np.float32) for s in ((N, 3), (N, N, 3)))
    for f, shapes in ((result, (points,)), (argument, (points, pairs)), (sort, (points,))):
        module = shardc.from_jax(jax.jit(f), *shapes).module
        lowered = run_pipeline(module, PASSES[: PASSES.index(SplitComponents())], Config())
        assert SplitComponents().run(lowered) is lowered
        check(module)


@pytest.mark.parametrize("seed", range(8))
def test_random_webs(seed: int) -> None:
    """Broadcasts of arrays with and without the short dimension, arithmetic, and reductions over any dimensions."""
    rng = draws.Random(seed)
    dims = [rng.choice([41, 60, 97]) for _ in range(3)]
    short = rng.randrange(3)
    dims[short] = rng.choice([2, 3, 4, 7])
    dims[short - 1] *= 5
    kept = [[k for k in range(3) if k != short], sorted({short, rng.randrange(3)}), [rng.randrange(3)]]
    picks = [(rng.choice(["add", "subtract", "maximum"]), rng.random(), rng.random()) for _ in range(4)]
    sums = [(short,), *(tuple(sorted(rng.sample(range(3), rng.randint(1, 2)))) for _ in range(2))]

    def web(*xs: jax.Array) -> tuple[jax.Array, ...]:
        values = [jax.lax.broadcast_in_dim(x, dims, k) for x, k in zip(xs, kept, strict=True)]
        for name, a, b in picks:
            left, right = (values[int(p * len(values))] for p in (a, b))
            values.append(getattr(jnp, name)(left, right) + values[-1] * 0.5)
        values.append(jnp.where(jax.lax.broadcasted_iota(jnp.int32, dims, short) == 1, values[-1], values[0]))
        return tuple(values[-1 - k % 2].sum(over) for k, over in enumerate(sums))

    shapes = [jax.ShapeDtypeStruct([dims[d] for d in k], np.float32) for k in kept]
    module = shardc.from_jax(jax.jit(web, keep_unused=True), *shapes).module
    args = random_arguments(module, seed)
    assert_close(compiled_results(module, args), evaluate(module, args), 1e-4)
