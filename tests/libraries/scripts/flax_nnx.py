"""Trains a network of flax.nnx: modules with state as arguments of jitted functions; no bias stands before a norm."""

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from told import tell


class Net(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(32, 16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=16, decode=False, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.attention(x))
        return self.out(self.dropout(nnx.gelu(x)).mean(1))


mesh = Mesh(np.array(jax.devices()), ("data",))
rng = np.random.default_rng(0)
split = NamedSharding(mesh, PartitionSpec("data"))
x = jax.device_put(rng.integers(0, 32, (8, 6)), split)
y = jax.device_put(rng.integers(0, 10, 8), split)
model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))


@nnx.jit
def step(model, optimizer, metrics, x, y):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss)
    return loss


for _ in range(3):
    tell(loss=step(model, optimizer, metrics, x, y))
tell(mean=metrics.compute(), params=nnx.state(model, nnx.Param), statistics=nnx.state(model, nnx.BatchStat))
