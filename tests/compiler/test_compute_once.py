"""Steps that one device does for others: the same bits as when everybody does them, also over donated arguments."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.compiler.executable import Executable
from shardc.hlo.config import Config
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver

Arrays = dict[str, np.ndarray]


def _weights() -> Arrays:
    draw = np.random.default_rng(0)
    return {n: draw.standard_normal(dims).astype(np.float32) for n, dims in {"up": (6, 16), "down": (16, 5)}.items()}


def _batch() -> Any:
    return np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32)


def _train(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["up"]) @ w["down"]) ** 2)

    value, g = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda p, d: p - 0.1 * d, w, g), value


def _compiled(function: Any, mesh: Mesh, ins: Any, outs: Any, *arguments: Any) -> Any:
    return shardc.jit(function, mesh=mesh, in_shardings=ins, out_shardings=outs, donate_argnums=0).compiled(*arguments)


def _without(driver: Driver) -> Driver:
    """The same program, everything done by every device."""
    every = dataclasses.replace(driver.executable, once=(), shared=())
    return Driver(every, driver._step, driver.transport, Config(), None, array_type=Array)


def _steps(driver: Driver, state: Arrays, x: Any, times: int = 3) -> list[Any]:
    leaves = jax.tree.leaves(state)
    values = []
    for _ in range(times):
        *leaves, value = driver([*leaves, x])
        values.append(np.asarray(value))
    return [*map(np.asarray, leaves), *values]


@pytest.mark.parametrize(
    ("mesh", "weights"),
    [
        (Mesh({"data": 4}), P()),
        (Mesh({"data": 2, "model": 2}), {"up": P(None, "model"), "down": P("model")}),
        (Mesh({"model": 4}), {"up": P(None, "model"), "down": P("model")}),
    ],
)
def test_the_same_bits_as_when_everybody_computes(mesh: Mesh, weights: Any) -> None:
    batch = P("data") if "data" in mesh.shape else P()
    compiled = _compiled(_train, mesh, (weights, batch), (weights, P()), _weights(), _batch())
    assert compiled.executable.once
    alone = _steps(_without(compiled.driver), _weights(), _batch())
    for found, expected in zip(_steps(compiled.driver, _weights(), _batch()), alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_replicated_updates_are_written_in_place_once() -> None:
    compiled = _compiled(_train, Mesh({"data": 4}), (P(), P("data")), (P(), P()), _weights(), _batch())
    executable: Executable = compiled.executable
    assert executable.shared == (0, 1)
    assert executable.result_classes == (0, 0, -1)  # the loss is reduced where each device left its part
    gradients = [o.wanted for c in executable.collectives for o in c.operands if o.count == 96]
    assert gradients == [0]
    masks = [int(arena[8:16].view(np.uint64)[0]) & 1 for arena in compiled.driver.arenas.values()]
    assert masks == [0, 1, 1, 1]
    state, _ = compiled(_weights(), _batch())
    before = {n: state[n]._blocks[0].ctypes.data for n in state}
    after, _ = compiled(state, _batch())
    assert all(after[n]._blocks[d].ctypes.data == before[n] for n in before for d in range(4))


def test_what_others_still_read_is_not_overwritten() -> None:
    """No collective lies between the devices' products with the weights and the new weights."""

    def step(w: Any, x: Any) -> Any:
        return w * 2, x @ w

    w = _weights()["up"]
    compiled = _compiled(step, Mesh({"data": 4}), (P(), P("data")), (P(), P("data")), w, _batch())
    assert compiled.executable.once
    assert compiled.executable.shared == ()
    new, y = compiled(compiled.driver.put(0, w), _batch())
    np.testing.assert_array_equal(np.asarray(new), w * 2)
    np.testing.assert_allclose(np.asarray(y), _batch() @ w, rtol=1e-5)


def test_what_depends_on_the_device_is_everybodys() -> None:
    def local(x: Any) -> Any:
        return jax.lax.psum(x, "data") * jax.lax.axis_index("data").astype(np.float32)

    mesh = Mesh({"data": 4})
    step = jax.shard_map(local, mesh=mesh.to_jax(), in_specs=_spec("data"), out_specs=_spec("data"), check_vma=False)
    x = _batch()
    y = np.asarray(shardc.jit(step, mesh=mesh, in_shardings=(P("data"),), out_shardings=P("data"))(x))
    total = x.reshape(4, 4, 6).sum(0)
    np.testing.assert_allclose(y.reshape(4, 4, 6), [total * k for k in range(4)], rtol=1e-5, atol=1e-6)


def test_values_carried_by_loops_and_read_by_exchanges() -> None:
    """What a loop makes of replicated values is done once only where no exchange of the loop reads it."""

    def step(w: Any, x: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            w, m = carry
            g = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
            return w - 0.1 * g, 0.9 * m + g

        w, m = jax.lax.fori_loop(0, 5, body, (w, jnp.zeros_like(w)))
        return w, m

    w = _weights()["up"]
    compiled = _compiled(step, Mesh({"data": 4}), (P(), P("data")), (P(), P()), w, _batch())
    found = _steps(compiled.driver, {"w": w}, _batch(), 2)
    alone = _steps(_without(compiled.driver), {"w": w}, _batch(), 2)
    for a, b in zip(found, alone, strict=True):
        np.testing.assert_array_equal(a, b)
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(step)(jax.jit(step)(w, _batch())[0], _batch())
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[-1], expected[1], rtol=1e-4, atol=1e-5)


def _spec(*axes: Any) -> Any:
    return jax.sharding.PartitionSpec(*axes)
