"""Trains a network of flax.linen with batch norm and dropout, data parallel.

No bias stands before a norm: its gradient is nothing but rounding, which Adam makes steps of.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from told import tell


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3), use_bias=False)(x)))
        x = nn.Dropout(0.1, deterministic=not train)(nn.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1))
        return nn.Dense(10)(x)


class TrainState(train_state.TrainState):
    batch_stats: dict


mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(0)
x = jax.device_put(rng.standard_normal((8, 8, 8, 3)).astype(np.float32), NamedSharding(mesh, PartitionSpec("data")))
y = jax.device_put(rng.integers(0, 10, 8), NamedSharding(mesh, PartitionSpec("data")))
model = Net()
variables = model.init(jax.random.key(0), x, train=False)
state = TrainState.create(
    apply_fn=model.apply, params=variables["params"], batch_stats=variables["batch_stats"], tx=optax.adam(1e-2)
)
state = jax.device_put(state, NamedSharding(mesh, PartitionSpec()))


@jax.jit
def step(state, x, y, key):
    def loss_of(params):
        logits, changed = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            x, train=True, rngs={"dropout": key}, mutable=["batch_stats"],
        )  # fmt: skip
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), changed

    (loss, changed), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=changed["batch_stats"]), loss


for key in jax.random.split(jax.random.key(1), 3):
    state, loss = step(state, x, y, key)
    tell(loss=loss)
tell(params=state.params, statistics=state.batch_stats, logits=jnp.tanh(model.apply(
    {"params": state.params, "batch_stats": state.batch_stats}, x, train=False)))  # fmt: skip
