"""`jax.lax.ragged_all_to_all` in `shard_map`, and its gradient, against NumPy."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import shardc
from shardc import Mesh, P
from tests.collectives.ragged_cases import ragged_tables

DATA, OUTPUT, ROW = 7, 9, (2, 3)


def exchange(axes: dict[str, int], over: Any, groups: Any = None, manual: Any = None) -> Any:
    """The function over arrays of all devices; rows lie one device's after the other's along ``over``."""
    mesh = jax.sharding.AbstractMesh(
        tuple(axes.values()), tuple(axes), axis_types=(jax.sharding.AxisType.Auto,) * len(axes)
    )
    spec = PartitionSpec(over)

    def local(*operands: jax.Array) -> jax.Array:
        return jax.lax.ragged_all_to_all(*operands, axis_name=over, axis_index_groups=groups)

    names = {"axis_names": manual} if manual else {}
    return jax.shard_map(local, mesh=mesh, in_specs=(spec,) * 6, out_specs=spec, **names)


def values(
    seed: int, groups: list[list[int]], dtype: Any = np.float32, per_peer: int = 1, *, once: bool = False
) -> list[np.ndarray]:
    """By device: data, output and tables."""
    rng = np.random.default_rng(seed)
    devices = sum(map(len, groups))
    tables = np.zeros((4, devices, len(groups[0]) * per_peer), np.int32)
    for group in groups:
        tables[:, group] = ragged_tables(rng, len(group), per_peer, DATA, OUTPUT, once=once)
    arrays = [(3 * rng.standard_normal((devices, n, *ROW))).astype(dtype) for n in (DATA, OUTPUT)]
    return [*arrays, *tables]


def moved(groups: list[list[int]], data: np.ndarray, output: np.ndarray, *tables: np.ndarray) -> np.ndarray:
    """What JAX's documentation says, update by update."""
    starts, sizes, targets, _ = tables
    result = output.copy()
    for group in groups:
        per_peer = starts.shape[1] // len(group)
        for sender in group:
            for u in range(starts.shape[1]):
                receiver, n = group[u // per_peer], sizes[sender, u]
                rows = data[sender, starts[sender, u] :][:n]
                result[receiver, targets[sender, u] :][:n] = rows
    return result


def run(function: Any, axes: dict[str, int], over: Any, parts: list[np.ndarray]) -> Any:
    whole = [p.reshape(-1, *p.shape[2:]) for p in parts]
    return shardc.jit(function, mesh=Mesh(axes), in_shardings=P(over), out_shardings=P(over))(*whole)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.bool_, np.int8])
@pytest.mark.parametrize(
    ("axes", "over", "groups", "listed"),
    [
        ({"x": 4}, "x", [[0, 1, 2, 3]], None),
        ({"x": 4}, "x", [[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        ({"x": 2, "y": 2}, ("x", "y"), [[0, 1, 2, 3]], None),
    ],
)
def test_values(axes: dict[str, int], over: Any, groups: list[list[int]], listed: Any, dtype: Any) -> None:
    parts = values(1, groups, dtype, per_peer=2)
    got = np.asarray(run(exchange(axes, over, listed), axes, over, parts))
    assert np.array_equal(got, moved(groups, *parts).reshape(got.shape))


@pytest.mark.parametrize("manual", [None, {"x"}])
def test_along_one_of_two_axes(manual: Any) -> None:
    """The other axis repeats the exchange, or splits what is in a row where it is free."""
    axes = {"x": 2, "y": 3}
    parts = values(5, [[0, 1]])
    whole = [p.reshape(-1, *p.shape[2:]) for p in parts]
    rows = P("x", None, "y") if manual else P("x")
    shardings = (rows, rows, *(P("x"),) * 4)
    function = exchange(axes, "x", manual=manual)
    compiled = shardc.jit(function, mesh=Mesh(axes), in_shardings=shardings, out_shardings=rows)
    np.testing.assert_array_equal(np.asarray(compiled(*whole)), moved([[0, 1]], *parts).reshape(-1, *ROW))


def test_gradient() -> None:
    """Each row's cotangent comes back to its sender; rows that the output keeps have theirs."""
    axes, group = {"x": 4}, [[0, 1, 2, 3]]
    parts = values(2, group, once=True)
    weight = np.random.default_rng(0).standard_normal((4 * OUTPUT, *ROW)).astype(np.float32)
    function = exchange(axes, "x")

    def loss(data: jax.Array, output: jax.Array, *tables: jax.Array) -> jax.Array:
        return (function(data, output, *tables) * weight).sum()

    gradient = run(jax.grad(loss, argnums=(0, 1)), axes, "x", parts)
    to_data, to_output = np.zeros_like(parts[0]), weight.reshape(4, OUTPUT, *ROW).copy()
    starts, sizes, targets, _ = parts[2:]
    for sender in range(4):
        for receiver in range(4):
            n = sizes[sender, receiver]
            come = weight.reshape(4, OUTPUT, *ROW)[receiver, targets[sender, receiver] :][:n]
            to_data[sender, starts[sender, receiver] :][:n] += come
            to_output[receiver, targets[sender, receiver] :][:n] = 0
    np.testing.assert_array_equal(np.asarray(gradient[0]), to_data.reshape(-1, *ROW))
    np.testing.assert_array_equal(np.asarray(gradient[1]), to_output.reshape(-1, *ROW))


def test_a_gradient_that_would_add_up_is_refused() -> None:
    """JAX's transpose writes each cotangent to its row; where a row was sent twice, that would be one of them."""
    parts = values(2, [[0, 1, 2, 3]])
    function = exchange({"x": 4}, "x")
    with pytest.raises(jax.errors.JaxRuntimeError, match="in a gradient, each row may be sent only once"):
        np.asarray(run(jax.grad(lambda *args: function(*args).sum()), {"x": 4}, "x", parts))


def test_sizes_that_do_not_fit() -> None:
    parts = values(3, [[0, 1, 2, 3]])
    parts[3][2, 1] = DATA + 1
    what = r"(?s)device 2 sends 8 rows .* to device 1, but its data has 7 rows.*test_ragged_exchanges.py"
    with pytest.raises(jax.errors.JaxRuntimeError, match=what):
        np.asarray(run(exchange({"x": 4}, "x"), {"x": 4}, "x", parts))


def test_gradients_of_dropless_experts(repository: Path) -> None:
    """Two exchanges and two ragged products, against all experts on one device."""
    example = runpy.run_path(str(repository / "examples" / "dropless_experts.py"))
    parallel, arguments = example["parallel"], [example[n] for n in ("x", "router", "up", "down")]
    weight = np.random.default_rng(1).standard_normal(arguments[0].shape).astype(np.float32)

    def dense(x: jax.Array, router: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        every = jnp.einsum("teh,ehd->ted", jax.nn.gelu(jnp.einsum("td,edh->teh", x, up)), down)
        return every[jnp.arange(len(x)), jnp.argmax(x @ router, axis=1)]

    def gradient(layer: Any) -> Any:
        return jax.grad(lambda *args: (layer(*args) * weight).sum(), argnums=(0, 2, 3))

    shardings = (P("x"), P(), P("x"), P("x"))
    compiled = shardc.jit(gradient(parallel), mesh=Mesh({"x": 4}), in_shardings=shardings, out_shardings=P("x"))
    for got, wanted in zip(compiled(*arguments), gradient(dense)(*arguments), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-4, atol=1e-4)
