"""One training step of a small network, in JAX. Most guides use it.

python step.py                            # four virtual devices in this process
shardc mpiexec -n 4 python step.py        # four MPI ranks
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P


def loss_of(weights, x, target):
    hidden = jax.nn.relu(x @ weights["up"])
    return jnp.mean((hidden @ weights["down"] - target) ** 2)


def step(weights, x, target):
    """The weights after one step of gradient descent, and the loss before it."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, x, target)
    return jax.tree.map(lambda w, s: w - s, weights, slopes), loss


mesh = Mesh({"data": 2, "model": 2})
specs = {"up": P(None, "model"), "down": P("model", None)}  # weights: split over model
rows = P("data", None)  # examples: split over data

random = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (scale * random.standard_normal(shape)).astype(np.float32)


weights = {"up": normal(512, 2048, scale=0.05), "down": normal(2048, 512, scale=0.02)}
x, target = normal(1024, 512), normal(1024, 512)


if __name__ == "__main__":
    train = shardc.jit(step, mesh=mesh, in_shardings=(specs, rows, rows), donate_argnums=0)
    for number in range(3):
        weights, loss = train(weights, x, target)
        if shardc.process_index() == 0:
            print(f"step {number}: loss {float(loss):.4f}")
