"""Programs to explain: three that are annotated well, and one for each pain."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

import shardc
from shardc import Mesh

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


@jax.custom_jvp
def tanh(x: Any) -> Any:
    """With a derivative of its own, as releases of JAX differ in theirs, and so in what is worth doing twice."""
    return jnp.tanh(x)


@tanh.defjvp
def _(x: Any, change: Any) -> Any:
    y = tanh(x[0])
    return y, (change[0] + change[0] * y) * (1 - y)


def gelu(x: Any) -> Any:
    return x * (0.5 * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def loss(params: Any, x: Any, y: Any) -> Any:
    h = gelu(x @ params["w1"] + params["b1"])
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


# -- one for each pain ---------------------------------------------------------------------------------------------


def _embed(params: Any, tokens: Any, x: Any) -> Any:
    h = params["table"][tokens] + x
    return jnp.mean((jax.nn.gelu(h @ params["w1"]) @ params["w2"]) ** 2)


def _train_embed(params: Any, tokens: Any, x: Any) -> Any:
    value, gradients = jax.value_and_grad(_embed)(params, tokens, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def embedding(table: Any = None) -> shardc.Program:
    """Megatron with a large embedding table that somebody forgot, unless ``table`` says how it lies."""
    params = {"table": shape(8192, 128), "w1": shape(128, 512), "w2": shape(512, 128)}
    specs = {"table": table or jax.P(None, None), "w1": jax.P(None, "model"), "w2": jax.P("model", None)}
    batch = (shape(64, dtype=jnp.int32), shape(64, 128))
    data = (jax.P("data"), jax.P("data", None))
    return program(_train_embed, (params, *batch), MESH, (specs, *data), (specs, jax.P()))


def part_of_gathered() -> shardc.Program:
    """A constraint makes an array whole, of which a few rows are read."""
    from jax.sharding import NamedSharding

    whole = NamedSharding(DATA4.to_jax(), jax.P())

    def window(x: Any, at: Any) -> Any:
        h = jax.lax.with_sharding_constraint(jnp.sin(x), whole)
        return jax.lax.dynamic_slice(h, (at, 0), (16, 256)) * 2.0

    return program(window, (shape(1024, 256), shape(dtype=jnp.int32)), DATA4, (jax.P("data"), jax.P()))


def gathered_for_all() -> shardc.Program:
    """A constraint makes a product's operand whole, and all devices do the same product."""
    from jax.sharding import NamedSharding

    whole = NamedSharding(MESH.to_jax(), jax.P("data", None))

    def step(x: Any, w1: Any, w2: Any) -> Any:
        h = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ w1), whole)
        return jax.lax.with_sharding_constraint(h @ w2, whole)

    specs = (jax.P("data", None), jax.P(None, "model"), jax.P(None, None))
    return program(step, (shape(256, 256), shape(256, 512), shape(512, 256)), MESH, specs)


def padded(n: int) -> shardc.Program:
    """Rows that are split over 4 devices whether or not they divide."""
    plain = shardc.from_jax(jax.jit(lambda x: jnp.sin(x).sum()), shape(n, 4096))
    return plain.annotate({"x": "data"}, mesh=DATA4)


def unused_axis() -> shardc.Program:
    """A mesh of two axes, one of which nobody names."""
    whole = jax.tree.map(lambda _: jax.P(), PARAMS)
    specs = (whole, jax.P("data"), jax.P("data"))
    return program(train, (PARAMS, *BATCH), MESH, specs, (whole, jax.P()))


def one_product_repeated() -> shardc.Program:
    """The first product is split over both axes, the second, larger one over one."""

    def step(x: Any, w1: Any, w2: Any) -> Any:
        return (x @ w1).sum(-1), x @ w2

    specs = (jax.P("data", None), jax.P(None, "model"), jax.P(None, None))
    results = (jax.P("data"), jax.P("data", None))
    return program(step, (shape(256, 256), shape(256, 512), shape(256, 1030)), MESH, specs, results)


def back_and_forth(*, loop: bool = False) -> shardc.Program:
    """An activation constrained one way, then another, then back, with nothing but elementwise work in between."""
    from jax.sharding import NamedSharding

    def lie(x: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(DATA4.to_jax(), jax.P(*spec)))

    def once(x: Any) -> Any:
        y = lie(jnp.sin(lie(x, "data", None)), None, "data")
        return lie(jnp.cos(y), "data", None)

    def step(x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (once(h), None), x, None, length=8)[0] if loop else once(x)

    return program(step, (shape(256, 512),), DATA4, (jax.P("data", None),))


def summed_alike() -> shardc.Program:
    """A manual computation adds up what is the same everywhere."""
    from jax.sharding import PartitionSpec

    def body(x: Any, w: Any) -> Any:
        return x + jax.lax.psum(w * 2.0, "data")

    rows, whole = PartitionSpec("data"), PartitionSpec()
    mesh = DATA4.to_jax()
    manual = jax.shard_map(body, mesh=mesh, in_specs=(rows, whole), out_specs=rows, check_vma=False)
    return program(manual, (shape(1024, 256), shape(256)), DATA4, (jax.P("data"), jax.P()))
