"""Training that is killed and goes on: on the same mesh with the same bits, on another one within rounding.
Run `python examples/checkpoint_resume.py`.
"""

import os
import signal
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

SPECS = {"w1": P(None, "model"), "w2": P("model", None)}


def update(state, x, y):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w["w1"]) @ w["w2"] - y) ** 2)

    value, grads = jax.value_and_grad(loss)(state["w"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["m"], grads)
    return {"w": jax.tree.map(lambda w, m: w - 0.05 * m, state["w"], momentum), "m": momentum}, value


def train(folder, mesh, steps=8, die_after=None):
    specs = {"w": SPECS, "m": SPECS}
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(0, 0.3, (16, 64)), "w2": rng.normal(0, 0.1, (64, 4))}
    weights = jax.tree.map(lambda w: w.astype(np.float32), weights)
    state, start = {"w": weights, "m": jax.tree.map(np.zeros_like, weights)}, 0
    if shardc.latest_checkpoint(folder):
        found = shardc.load_checkpoint(folder, like=state, shardings=specs, mesh=mesh)  # only this process's parts
        state, start = found.tree, found.step
    step = shardc.jit(update, mesh=mesh, in_shardings=(specs, P("data"), P("data")), out_shardings=(specs, P()))
    for number in range(start, steps):
        x = np.random.default_rng(number).normal(0, 1, (32, 16)).astype(np.float32)
        state, _ = step(state, x, np.sin(x[:, :4]))
        shardc.save_checkpoint(folder, state, step=number + 1, keep=2)
        if number + 1 == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
    return {k: shardc.gather(v) for k, v in state["w"].items()}


if __name__ == "__main__":
    first, other = Mesh({"data": 2, "model": 2}), Mesh({"data": 1, "model": 8})
    if len(sys.argv) > 1:
        train(sys.argv[1], first, die_after=5)
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        expected = train(whole, first)
        for folder, mesh, allowed in ((a, first, 0), (b, other, 1e-6)):
            died = subprocess.run([sys.executable, __file__, folder], check=False).returncode == -signal.SIGKILL
            resumed = train(folder, mesh)
            error = max(float(np.abs(resumed[k] - expected[k]).max()) for k in expected)
            print(f"killed: {died}, resumed on {mesh}: differs by {error:.1e}")
            assert died and error <= allowed
