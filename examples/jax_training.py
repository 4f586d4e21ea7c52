"""A transformer layer trained with Adam, sharded over data and model: plain JAX, which knows nothing of shardc.

JAX_PLATFORMS=shardc SHARDC_NUM_DEVICES=4 python jax_training.py
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

WORDS, WIDTH, HEADS, LENGTH, BATCH = 64, 64, 4, 32, 16
mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
parts = {
    "embed": ((WORDS, WIDTH), P(None, "model")),
    "qkv": ((WIDTH, 3, HEADS, WIDTH // HEADS), P(None, None, "model", None)),
    "out": ((HEADS, WIDTH // HEADS, WIDTH), P("model", None, None)),
    "up": ((WIDTH, 4 * WIDTH), P(None, "model")),
    "down": ((4 * WIDTH, WIDTH), P("model", None)),
}


def place(value, spec):
    return jax.device_put(value, NamedSharding(mesh, spec))


def loss_of(w, tokens):
    x = w["embed"][tokens[:, :-1]]
    q, k, v = jnp.einsum("btd,dchk->cbhtk", x, w["qkv"])
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), q @ k.mT / 4.0, -1e9)
    x += jnp.einsum("bhtk,hkd->btd", jax.nn.softmax(scores) @ v, w["out"])
    x += jax.nn.gelu(x @ w["up"]) @ w["down"]
    logits = jax.lax.with_sharding_constraint(x @ w["embed"].T, NamedSharding(mesh, P("data", None, "model")))
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1))


@partial(jax.jit, donate_argnums=0)
def train(state, step, tokens):
    loss, gradients = jax.value_and_grad(loss_of)(state["w"], tokens)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradients)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], gradients)
    rate = 3e-3 * jnp.sqrt(1 - 0.99**step) / (1 - 0.9**step)
    w = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-6), state["w"], m, v)
    return {"w": w, "m": m, "v": v}, loss


random = np.random.default_rng(0)
weights = {n: place(random.normal(0, 0.1, s).astype(np.float32), p) for n, (s, p) in parts.items()}
state = {"w": weights, "m": jax.tree.map(jnp.zeros_like, weights), "v": jax.tree.map(jnp.zeros_like, weights)}
for step in range(1, 11):
    first = random.integers(0, WORDS, (BATCH, 1))
    tokens = place((first + 5 * np.arange(LENGTH + 1)) % WORDS, P("data", None))
    state, loss = train(state, np.float32(step), tokens)
    print(f"step {step} loss {loss:.7f}", flush=True)
