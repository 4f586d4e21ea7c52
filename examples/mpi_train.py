"""Training under MPI: one program for all ranks, two-layer perceptron, data x model parallel.

    shardc mpiexec -n 4 python examples/mpi_train.py        (or mpirun, or srun --mpi=pmi2)

Without a launcher the four devices are virtual and the numbers are the same, bit for bit.
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

MESH, ROWS, STEPS, BATCH, RATE = Mesh({"data": 2, "model": 2}), P("data"), 60, 64, 0.05
# Columns of w1 and rows of w2 are split over "model", the batch over "data"; the rest follows.
WEIGHTS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}


def loss(weights, x, y):
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    return jnp.mean((hidden @ weights["w2"] + weights["b2"] - y) ** 2)


def step(weights, x, y, rate):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return jax.tree.map(lambda w, g: w - rate * g, weights, gradients), value


IN = (WEIGHTS, ROWS, ROWS, None)
train = shardc.jit(step, mesh=MESH, donate_argnums=0, in_shardings=IN, out_shardings=(WEIGHTS, P()))
evaluate = shardc.jit(loss, mesh=MESH, in_shardings=IN[:3])


def batch(number):
    """Every rank makes (or reads) only the rows that its devices hold."""

    def rows(at):  # a tuple of slices
        return np.stack([np.random.default_rng([number, r]).normal(0, 1, 16) for r in range(BATCH)[at[0]]]).astype("f4")

    x = shardc.array_from_callback((BATCH, 16), "float32", (MESH, ROWS), rows)
    return x, shardc.array_from_callback((BATCH, 4), "float32", (MESH, ROWS), lambda at: np.sin(rows(at)[:, 3:7]))


def main() -> None:
    rng = np.random.default_rng(0)  # the same seed, hence the same weights, on every rank
    w1, w2 = (rng.normal(0, 0.2, shape).astype("f4") for shape in ((16, 128), (128, 4)))
    weights = {"w1": w1, "b1": np.zeros(128, "f4"), "w2": w2, "b2": np.zeros(4, "f4")}
    for number in range(STEPS):
        weights, value = train(weights, *batch(number), RATE / (1 + number / STEPS))
        if number % 20 == 0:  # every rank takes part in what runs on the mesh; rank 0 prints what is replicated
            held_out = evaluate(weights, *batch(STEPS))
            if shardc.process_index() == 0:
                print(f"step {number:3d}  loss {value:.4f}  held out {held_out:.4f}")
    w1 = shardc.gather(weights["w1"])  # sharded: every rank takes part
    if shardc.process_index() == 0:
        print(f"done on {shardc.process_count()} processes, |w1| = {np.linalg.norm(w1):.4f}, loss {value:.4f}")


main()
