"""A transformer's training step on 512 virtual devices in this process, on a mesh of three axes, checked against JAX.

Run `python examples/mesh_512.py`. Every device has shards of its own; what several devices hold alike is there once.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

LAYERS, BATCH, LENGTH, WIDTH, HEADS, VOCABULARY = 4, 128, 16, 64, 8, 256
mesh = Mesh({"data": 8, "fsdp": 8, "model": 8})
by_rows = partial(jax.lax.with_sharding_constraint, shardings=jax.NamedSharding(mesh.to_jax(), jax.P(("data", "fsdp"))))


def normed(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def layer(constrain, x, w):
    q, k, v = (jnp.einsum("btd,dhk->bthk", normed(x), w[n]) for n in "qkv")
    scores = jnp.einsum("bthk,bshk->bhts", q, k) * (WIDTH // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    x = constrain(x + jnp.einsum("bhts,bshk,hkd->btd", jax.nn.softmax(scores), v, w["out"]))
    return constrain(x + jax.nn.gelu(normed(x) @ w["up"]) @ w["down"]), None


def step(params, tokens, constrain=by_rows):
    def loss_of(params):
        x, _ = jax.lax.scan(partial(layer, constrain), constrain(params["embed"][tokens]), params["layers"])
        logits = normed(x)[:, :-1] @ params["embed"].T
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1))

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


shapes = dict.fromkeys("qkv", (LAYERS, WIDTH, HEADS, WIDTH // HEADS)) | {"out": (LAYERS, HEADS, WIDTH // HEADS, WIDTH)}
shapes |= {"up": (LAYERS, WIDTH, 4 * WIDTH), "down": (LAYERS, 4 * WIDTH, WIDTH)}
layers = {n: P(None, "fsdp", "model") for n in shapes} | {"out": P(None, "model", None, "fsdp")}
specs = {"layers": layers | {"down": P(None, "model", "fsdp")}, "embed": P("model", "fsdp")}
rng = np.random.default_rng(0)
params = {"layers": {n: rng.normal(0, 0.1, s).astype(np.float32) for n, s in shapes.items()}}
params["embed"] = rng.normal(0, 0.3, (VOCABULARY, WIDTH)).astype(np.float32)
tokens = rng.integers(0, VOCABULARY, (BATCH, LENGTH), dtype=np.int32)

sharded_step = shardc.jit(step, mesh=mesh, in_shardings=(specs, P(("data", "fsdp"))), out_shardings=(specs, P()))
expected, plain_step = params, jax.jit(partial(step, constrain=lambda x: x))
for _ in range(4):
    start = time.perf_counter()
    params, loss = jax.block_until_ready(sharded_step(params, tokens))
    print(f"{mesh.size} devices: {time.perf_counter() - start:6.2f} s, loss {float(loss):.6f}", end=", ")
    expected, expected_loss = plain_step(expected, tokens)
    print(f"plain JAX {float(expected_loss):.6f}")
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), params, expected)
