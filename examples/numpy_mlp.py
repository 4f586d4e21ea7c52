"""A perceptron in plain NumPy, backward pass by hand, trained data x model parallel. No JAX anywhere.

Run `python examples/numpy_mlp.py` for four virtual devices, `shardc mpiexec -n 4 python examples/numpy_mlp.py` for MPI
ranks: the same numbers, bit for bit.
"""

import numpy as np

import shardc
from shardc import Mesh, P, ShapeDtype

MESH = Mesh({"data": 2, "model": 2})
STEPS, BATCH, INPUTS, HIDDEN, OUTPUTS = 60, 64, 16, 128, 4
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}


def step(weights, x, y, rate):
    """Returns new weights and the loss; runs as it is on plain arrays, too."""
    hidden = shardc.shard(np.tanh(x @ weights["w1"] + weights["b1"]), P("data", "model"))
    error = hidden @ weights["w2"] + weights["b2"] - y
    loss = np.mean(error**2)
    slope = 2 * error / error.size
    back = (slope @ weights["w2"].T) * (1 - hidden**2)
    gradients = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ slope, "b2": slope.sum(axis=0)}
    return {name: w - rate * gradients[name] for name, w in weights.items()}, loss


def main():
    rng = np.random.default_rng(0)  # the same seed, hence the same global values, on every rank
    weights = {
        "w1": rng.normal(0, 0.3, (INPUTS, HIDDEN)).astype("float32"),
        "b1": np.zeros(HIDDEN, "float32"),
        "w2": rng.normal(0, 0.1, (HIDDEN, OUTPUTS)).astype("float32"),
        "b2": np.zeros(OUTPUTS, "float32"),
    }
    x, y = ShapeDtype((BATCH, INPUTS), "float32", P("data")), ShapeDtype((BATCH, OUTPUTS), "float32", P("data"))
    shardings = {"in_shardings": (SPECS, None, None, None), "out_shardings": (SPECS, P())}
    program = shardc.trace(step, weights, x, y, 0.1, mesh=MESH, donate_argnums=0, **shardings)
    partitioned = program.partition()
    first = shardc.process_index() == 0
    if first:
        print("inserted collectives:")
        print("\n".join(partitioned.explain()))
    train = partitioned.compile("cpu")
    target, plain = rng.normal(0, 0.2, (INPUTS, OUTPUTS)), weights
    for number in range(STEPS):
        inputs = rng.normal(0, 1, (BATCH, INPUTS)).astype("float32")
        wanted = np.sin(inputs @ target).astype("float32")
        weights, loss = train(weights, inputs, wanted, 0.2)
        plain, plain_loss = step(plain, inputs, wanted, 0.2)
        if number % 20 == 0 and first:
            print(f"step {number:3d}  loss {float(loss):.5f}  plain NumPy {plain_loss:.5f}")
    w1 = shardc.gather(weights["w1"])  # sharded: every rank takes part
    np.testing.assert_allclose(w1, plain["w1"], atol=1e-4)
    if first:
        print(f"done on {shardc.process_count()} processes, loss {float(loss):.5f}; weights agree with plain NumPy")


if __name__ == "__main__":
    main()
