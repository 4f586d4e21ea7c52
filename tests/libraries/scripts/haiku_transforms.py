"""Trains a recurrent and a convolutional network of haiku, transformed with state."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from told import tell

rng = np.random.default_rng(0)
x = rng.standard_normal((4, 8, 8, 3)).astype(np.float32)
y = rng.integers(0, 5, 4)


def net(x, train):
    x = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(8, 3)(x), train)
    x = hk.dropout(hk.next_rng_key(), 0.1, jax.nn.relu(x)) if train else jax.nn.relu(x)
    core = hk.LSTM(8)
    rows, _ = hk.dynamic_unroll(core, x.mean(2).transpose(1, 0, 2), core.initial_state(x.shape[0]))
    return hk.Linear(5)(rows[-1])


model = hk.transform_with_state(net)
params, state = model.init(jax.random.PRNGKey(0), x, True)
optimizer = optax.sgd(0.1, momentum=0.9)
memory = optimizer.init(params)


@jax.jit
def step(params, state, memory, key):
    def loss_of(params):
        logits, new = model.apply(params, state, key, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

    (loss, new), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    updates, memory = optimizer.update(grads, memory)
    return optax.apply_updates(params, updates), new, memory, loss


for key in hk.PRNGSequence(1).take(3):
    params, state, memory, loss = step(params, state, memory, key)
    tell(loss=loss)
tell(params=params, state=state, logits=model.apply(params, state, None, jnp.asarray(x), False)[0])
