"""`shardc.jit` in place of `jax.jit`: the same training loop, on a 2x2 mesh of virtual devices or MPI ranks.

Run `python examples/jax_jit.py` for virtual devices, `shardc mpiexec -n 4 python examples/jax_jit.py` for MPI ranks.
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

mesh = Mesh({"data": 2, "model": 2})


def loss_of(params, x, y):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - y) ** 2)


def step(params, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


specs = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model")}
sharded_step = shardc.jit(
    step, mesh=mesh, in_shardings=(specs, P("data"), P("data")), out_shardings=(specs, P()), donate_argnums=0
)

rng = np.random.default_rng(0)
params = {
    "w1": rng.normal(0, 0.2, (16, 64)).astype(np.float32),
    "b1": np.zeros(64, np.float32),
    "w2": rng.normal(0, 0.1, (64, 8)).astype(np.float32),
}
x = rng.standard_normal((32, 16), dtype=np.float32)
y = np.tanh(x @ rng.standard_normal((16, 8), dtype=np.float32))

expected, plain_step = params, jax.jit(step)
for number in range(20):
    params, loss = sharded_step(params, x, y)
    expected, expected_loss = plain_step(expected, x, y)
    if number % 5 == 0 and shardc.process_index() == 0:
        print(f"step {number:2d}: loss {float(loss):.5f}, plain JAX {float(expected_loss):.5f}")

np.testing.assert_allclose(float(loss), float(expected_loss), rtol=1e-4)
for name in params:
    whole = shardc.gather(params[name])  # every rank takes part
    np.testing.assert_allclose(whole, expected[name], rtol=1e-3, atol=1e-5)
if shardc.process_index() == 0:
    print(f"w1 is {specs['w1']} on {mesh}; all parameters agree with plain JAX")
