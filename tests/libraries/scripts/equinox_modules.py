"""Trains modules of equinox: filtered transformations, modules as arguments, runtime checks, serialisation."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from told import tell

rng = np.random.default_rng(0)
x, y = rng.standard_normal((16, 6)).astype(np.float32), rng.standard_normal((16, 2)).astype(np.float32)
keys = jax.random.split(jax.random.key(0), 3)
model = eqx.nn.Sequential([
    eqx.nn.MLP(6, 16, 32, 2, key=keys[0]), eqx.nn.LayerNorm(16), eqx.nn.Dropout(0.1), eqx.nn.Linear(16, 2, key=keys[1]),
])  # fmt: skip
optimizer = optax.adabelief(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def step(model, state, x, y, key):
    @eqx.filter_value_and_grad
    def loss_of(model):
        out = jax.vmap(lambda row, k: model(row, key=k))(x, jax.random.split(key, len(x)))
        return jnp.mean((out - y) ** 2)

    loss, grads = loss_of(model)
    loss = eqx.error_if(loss, jnp.isnan(loss), "the loss is no number")
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, loss


for key in jax.random.split(keys[2], 3):
    model, state, loss = step(model, state, x, y, key)
    tell(loss=loss)
file = io.BytesIO()
eqx.tree_serialise_leaves(file, model)
file.seek(0)
again = eqx.tree_deserialise_leaves(file, model)
tell(again=eqx.filter(again, eqx.is_array))
try:
    step(model, state, x * np.nan, y, keys[0])[2].block_until_ready()
except Exception as e:
    tell(refused=["the loss is no number" in str(e)])
