"""A small transformer trained with Adam, sharded over data and model: plain JAX, which knows nothing of shardc.

    JAX_PLATFORMS=shardc SHARDC_NUM_DEVICES=4 python jax_training.py
    JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=4 python jax_training.py     # the same on JAX's own backend
    JAX_PLATFORMS=shardc shardc mpiexec -n 4 python jax_training.py    # the same on four ranks

Prints the loss of each step.
"""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = int(os.environ.get("STEPS", "10"))
VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 64, 4, 2, 32, 16

mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))

LAYER = {
    "qkv": ((WIDTH, 3, HEADS, WIDTH // HEADS), P(None, None, "model", None)),
    "out": ((HEADS, WIDTH // HEADS, WIDTH), P("model", None, None)),
    "up": ((WIDTH, 4 * WIDTH), P(None, "model")),
    "down": ((4 * WIDTH, WIDTH), P("model", None)),
}
SHAPES = {"embed": ((VOCABULARY, WIDTH), P(None, "model")), "layers": [LAYER] * LAYERS}


def is_leaf(x):
    return isinstance(x, tuple)


def place(value, spec):
    return jax.device_put(value, NamedSharding(mesh, spec))


def initial_state(seed):
    random = np.random.default_rng(seed)

    def parameter(leaf):
        shape, spec = leaf
        return place(random.normal(0, 0.1, shape).astype(np.float32), spec)

    parameters = jax.tree.map(parameter, SHAPES, is_leaf=is_leaf)
    zeros = partial(jax.tree.map, lambda p: place(np.zeros(p.shape, np.float32), p.sharding.spec))
    return {"parameters": parameters, "mean": zeros(parameters), "square": zeros(parameters),
            "step": place(np.int32(0), P())}  # fmt: skip


def normalised(x):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(layer, x):
    q, k, v = jnp.einsum("btd,dchk->cbhtk", normalised(x), layer["qkv"])
    scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool)), scores, -1e9)
    return jnp.einsum("bhtk,hkd->btd", jax.nn.softmax(scores) @ v, layer["out"])


def loss_of(parameters, tokens):
    x = parameters["embed"][tokens[:, :-1]]
    for layer in parameters["layers"]:
        x = x + attention(layer, x)
        x = x + jax.nn.gelu(normalised(x) @ layer["up"]) @ layer["down"]
        x = lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", None, None)))
    logits = normalised(x) @ parameters["embed"].T
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1))


@partial(jax.jit, donate_argnums=0)
def train(state, tokens):
    loss, gradients = jax.value_and_grad(loss_of)(state["parameters"], tokens)
    step = state["step"] + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], gradients)

    def moved(p, m, s):
        return p - 3e-3 * (m / (1 - 0.9**step)) / (jnp.sqrt(s / (1 - 0.99**step)) + 1e-6)

    parameters = jax.tree.map(moved, state["parameters"], mean, square)
    return {"parameters": parameters, "mean": mean, "square": square, "step": step}, loss


def main():
    random = np.random.default_rng(1)
    state = initial_state(0)
    for step in range(STEPS):
        start = random.integers(0, VOCABULARY, (BATCH, 1))
        tokens = place(((start + 5 * np.arange(LENGTH + 1)) % VOCABULARY).astype(np.int32), P("data", None))
        state, loss = train(state, tokens)
        print(f"step {step} loss {float(loss):.7f}", flush=True)


if __name__ == "__main__":
    main()
