"""Training under MPI: one program for all ranks, two-layer perceptron, data x model parallel.

    shardc mpiexec -n 4 python examples/mpi_train.py

Without a launcher the four devices are virtual and the numbers are the same, bit for bit.
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

MESH = Mesh({"data": 2, "model": 2})
STEPS, BATCH, RATE = 60, 64, 0.05

# Columns of w1 and rows of w2 are split over "model", the batch over "data"; the rest follows.
WEIGHTS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}


def loss(weights, x, y):
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return jnp.mean((hidden @ weights["w2"] + weights["b2"] - y) ** 2)


def step(weights, x, y):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return jax.tree.map(lambda w, g: w - RATE * g, weights, gradients), value


SHARDINGS = {"in_shardings": (WEIGHTS, P("data"), P("data")), "out_shardings": (WEIGHTS, P())}
train = shardc.jit(step, mesh=MESH, donate_argnums=0, **SHARDINGS)


def main() -> None:
    rng = np.random.default_rng(0)  # the same seed, hence the same global values, on every rank
    f32 = np.float32
    weights = {
        "w1": rng.normal(0, 0.3, (16, 128)).astype(f32),
        "b1": np.zeros(128, f32),
        "w2": rng.normal(0, 0.1, (128, 4)).astype(f32),
        "b2": np.zeros(4, f32),
    }
    target = rng.normal(0, 1, (16, 4)).astype(f32)
    for number in range(STEPS):
        x = rng.normal(0, 1, (BATCH, 16)).astype(f32)
        weights, value = train(weights, x, np.sin(x @ target))
        if number % 20 == 0 and shardc.process_index() == 0:
            print(f"step {number:3d}  loss {value:.4f}")  # the loss is replicated: no communication
    w1 = shardc.gather(weights["w1"])  # sharded: every rank takes part
    if shardc.process_index() == 0:
        print(f"done on {shardc.process_count()} processes, |w1| = {np.linalg.norm(w1):.4f}, loss {value:.4f}")


if __name__ == "__main__":
    main()
