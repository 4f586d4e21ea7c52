"""Programs on many virtual devices of one process: right results, and what devices hold alike in memory once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Compiled, Mesh, P
from shardc.launcher.driver.compiled import job_config

WIDTH, ROWS = 24, 136


def training_step(params: Any, x: Any, y: Any) -> Any:
    """Two layers in a scan, an output, momentum-free descent; sizes that no axis of 4 divides evenly."""

    def loss_of(params: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return h + jnp.tanh(h @ w), None

        h, _ = jax.lax.scan(layer, x, params["layers"])
        return jnp.mean((h @ params["out"] - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def values() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    params = {
        "layers": rng.normal(0, 0.2, (2, WIDTH, WIDTH)).astype(np.float32),
        "out": rng.normal(0, 0.2, (WIDTH, 5)).astype(np.float32),
    }
    x = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    return params, x, np.sin(x[:, :5])


def checked(axes: dict[str, int], rows: Any, layers: Any) -> Compiled:
    """The step on a mesh; each run is compared with the unpartitioned program."""
    wanted = {"params['layers']": layers, "params['out']": P(), "x": P(rows), "y": P(rows)}
    found = shardc.from_jax(jax.jit(training_step), *values()).annotate(wanted, mesh=Mesh(axes))
    partitioned = found.partition()
    config = replace(job_config(), check=True)
    return Compiled(partitioned.compile().executable, found.jax, config, source=lambda: partitioned)


def distinct(array: Any) -> tuple[int, int]:
    """How many different pieces of memory its shards lie in, and how many different shards there are."""
    shards = array.addressable_shards
    return len({s.data.ctypes.data for s in shards if s.data.size}), len({str(s.index) for s in shards if s.data.size})


def train(axes: dict[str, int], rows: Any, layers: Any) -> None:
    run = checked(axes, rows, layers)
    params, x, y = values()
    for _ in range(2):
        params, loss = run(params, x, y)
    held = [*jax.tree.leaves(params), loss]
    assert [len(a.addressable_shards) for a in held] == [run.executable.num_devices] * 3
    for array in held:
        places, shards = distinct(array)
        assert places == shards


def test_64_devices_on_three_axes() -> None:
    train({"data": 4, "fsdp": 4, "model": 4}, ("data", "fsdp"), P(None, "fsdp", "model"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("axes", "rows", "layers"),
    [
        ({"data": 512}, "data", P()),
        ({"data": 8, "fsdp": 8, "model": 8}, ("data", "fsdp"), P(None, "fsdp", "model")),
        ({"data": 16, "fsdp": 8, "model": 8}, ("data", "fsdp"), P(None, "fsdp", "model")),
        ({"pod": 2, "data": 8, "fsdp": 4, "model": 8}, ("pod", "data"), P(None, ("fsdp", "model"))),
    ],
)
def test_512_and_1024_devices(axes: dict[str, int], rows: Any, layers: Any) -> None:
    train(axes, rows, layers)


def test_an_argument_that_all_devices_hold_is_there_once() -> None:
    mesh = Mesh({"x": 8, "y": 8})
    found = shardc.trace(lambda w, x: x @ w, *map(np.float32, (np.ones((64, 64)), np.ones((64, 64)))),
                         mesh=mesh, in_shardings=(P(), P("x")))  # fmt: skip
    driver = found.compile().driver
    put = [driver.put(k, np.ones((64, 64), np.float32)) for k in range(2)]
    assert [distinct(a) for a in put] == [(1, 1), (8, 8)]
