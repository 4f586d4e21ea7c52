"""What JAX programs read in the order of a split sort is sorted along: as JAX has it, and without a gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

jax = pytest.importorskip("jax")
jnp = jax.numpy

N = 1 << 13
#: Name, function of keys and rows, and how many lines of elements each sort exchanges in all.
CASES: list[tuple[str, Callable[[Any, Any], Any], int]] = [
    ("by_itself", lambda x, y: x[jnp.argsort(x)], 1),
    ("take", lambda x, y: jnp.take(x, jnp.argsort(x)), 1),
    ("along", lambda x, y: jnp.take_along_axis(x, jnp.argsort(x), axis=0), 1),
    ("filled", lambda x, y: x.at[jnp.argsort(x)].get(mode="fill"), 1),
    ("descending", lambda x, y: x[jnp.argsort(x, descending=True)], 1),
    ("sort_descending", lambda x, y: jnp.sort(x, descending=True), 1),
    ("rows", lambda x, y: y[jnp.argsort(x)], 4),
    ("both", lambda x, y: (y[jnp.argsort(x)], x[jnp.argsort(x)]), 4),
    ("two_rounds", lambda x, y: y[jax.lax.sort((y[:, 0], jnp.argsort(x)), num_keys=1)[1]], 8),
    ("shuffle", lambda x, y: jax.random.permutation(jax.random.PRNGKey(1), y), 8),
    ("by_two_keys", lambda x, y: y[jnp.lexsort((x, y[:, 0]))], 9),
]


@pytest.mark.parametrize(("function", "lines"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_as_jax(function: Callable[[Any, Any], Any], lines: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1000, N).astype(np.float32)
    x[:4] = np.nan, -0.0, np.inf, np.nan
    y = rng.standard_normal((N, 3)).astype(np.float32)
    step = shardc.jit(function, mesh=Mesh({"x": 4}), in_shardings=(P("x"), P("x")), out_shardings=P("x"))
    for got, wanted in zip(jax.tree.leaves(step(x, y)), jax.tree.leaves(jax.jit(function)(x, y)), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    found = step.partitioned(x, y).report()["collectives"]
    exchanged = sum(c["wire_bytes"] for c in found if c["op"] == "all-to-all")
    assert exchanged <= 1.5 * lines * N // 4 * 4
    assert sum(c["wire_bytes"] for c in found if c["op"] == "all-gather") < N // 4


def own_order(x: Any) -> Any:
    return x[jnp.argsort(x)]


@pytest.mark.parametrize(("donated", "shards"), [((), 2.4), ((0,), 1.4)])
def test_memory_of_a_line_in_its_own_order(donated: tuple[int, ...], shards: float) -> None:
    """4 Mi elements over two devices: argument, result, and what a slice needs; a donated argument is the result."""
    n = 1 << 22
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    x[::1000], x[::777], x[::501] = -0.0, 0.0, np.nan
    x.view(np.uint32)[::5003] = 0xFFC00001
    step = shardc.jit(own_order, mesh=Mesh({"x": 2}), in_shardings=P("x"), out_shardings=P("x"), donate_argnums=donated)
    report = step.partitioned(x).report()
    assert report["peak_bytes"] < shards * n // 2 * 4 < 25_000_000
    assert not any(c["op"] == "all-gather" and c["wire_bytes"] > 1024 for c in report["collectives"])
    wanted = x[np.argsort(x, kind="stable")]
    got = np.asarray(step(x.copy()))
    np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))


def test_a_result_that_is_read_as_it_is_stays() -> None:
    def both(x: Any) -> Any:
        found = jnp.sort(x[::-1])
        return found, found[::-1]

    x = np.random.default_rng(0).permutation(N).astype(np.float32)
    step = shardc.jit(both, mesh=Mesh({"x": 4}), in_shardings=P("x"), out_shardings=P("x"))
    rising, falling = step(x)
    np.testing.assert_array_equal(np.asarray(rising), np.sort(x))
    np.testing.assert_array_equal(np.asarray(falling), np.sort(x)[::-1])
