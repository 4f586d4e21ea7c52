"""Programs to explain: three that are annotated well, and one for each pain."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import shardc
from shardc import Mesh, P

F32 = jnp.float32
DATA4 = Mesh({"data": 4})
MESH = Mesh({"data": 2, "model": 4})


def shape(*dims: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def program(function: Any, args: Any, mesh: Mesh, specs: Any, results: Any = None) -> shardc.Program:
    """A program with JAX's shardings on an abstract mesh."""
    from jax.sharding import NamedSharding

    over = mesh.to_jax()

    def named(tree: Any) -> Any:
        return jax.tree.map(lambda s: NamedSharding(over, s), tree, is_leaf=lambda s: isinstance(s, jax.P))

    options: dict[str, Any] = {} if results is None else {"out_shardings": named(results)}
    return shardc.from_jax(jax.jit(function, in_shardings=named(specs), **options), *args)


def loss(params: Any, x: Any, y: Any) -> Any:
    h = jax.nn.gelu(x @ params["w1"] + params["b1"])
    return jnp.mean((h @ params["w2"] - y) ** 2)


def train(params: Any, x: Any, y: Any) -> Any:
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


PARAMS = {"w1": shape(256, 1024), "b1": shape(1024), "w2": shape(1024, 256)}
BATCH = (shape(64, 256), shape(64, 256))


def data_parallel() -> shardc.Program:
    whole = jax.tree.map(lambda _: jax.P(), PARAMS)
    return program(train, (PARAMS, *BATCH), DATA4, (whole, jax.P("data"), jax.P("data")), (whole, jax.P()))


def megatron(w2: Any = None, **params: Any) -> shardc.Program:
    specs = {"w1": jax.P(None, "model"), "b1": jax.P("model"), "w2": w2 or jax.P("model", None), **params}
    batch = jax.P("data", None)
    return program(train, (PARAMS, *BATCH), MESH, (specs, batch, batch), (specs, jax.P()))


def scanned(params: Any, x: Any) -> Any:
    def layer(h: Any, p: Any) -> Any:
        return h + jax.nn.gelu(h @ p["w"]) @ p["v"], None

    return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)


def train_scanned(params: Any, x: Any) -> Any:
    value, gradients = jax.value_and_grad(scanned)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


LAYERS = {"w": shape(6, 128, 512), "v": shape(6, 512, 128)}


def fsdp_scan() -> shardc.Program:
    specs = {"w": jax.P(None, "data", None), "v": jax.P(None, "data", None)}
    return program(train_scanned, (LAYERS, shape(512, 128)), DATA4, (specs, jax.P("data")), (specs, jax.P()))
