"""Fully sharded data parallelism, layers in a scan: every weight, gradient and moment is split over `data`.

Run `python examples/jax_fsdp_scan.py`: four virtual devices, or MPI ranks under `shardc mpiexec -n 4`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

LAYERS, WIDTH, BATCH = 4, 64, 256
mesh = Mesh({"data": 4})


def loss_of(params, x, y):
    def layer(h, p):
        return h + jax.nn.gelu(h @ p["w"] + p["b"]), None

    h, _ = jax.lax.scan(layer, x, params["layers"])
    return jnp.mean((h @ params["out"] - y) ** 2)


def step(state, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(state["params"], x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.002 * m, state["params"], momentum)
    return {"params": params, "momentum": momentum}, loss


specs = {"layers": {"w": P(None, "data"), "b": P(None, "data")}, "out": P("data")}
state_specs = {"params": specs, "momentum": specs}
rng = np.random.default_rng(0)
params = {
    "layers": {
        "w": rng.normal(0, WIDTH**-0.5, (LAYERS, WIDTH, WIDTH)).astype(np.float32),
        "b": np.zeros((LAYERS, WIDTH), np.float32),
    },
    "out": rng.normal(0, WIDTH**-0.5, (WIDTH, 1)).astype(np.float32),
}
state = {"params": params, "momentum": jax.tree.map(np.zeros_like, params)}
x = rng.standard_normal((BATCH, WIDTH), dtype=np.float32)
y = np.sin(x.sum(1, keepdims=True))

shardings = {"in_shardings": (state_specs, P("data"), P("data")), "out_shardings": (state_specs, P())}
sharded_step = shardc.jit(step, mesh=mesh, donate_argnums=0, **shardings)
is_first = shardc.process_index() == 0
for c in sharded_step.program(state, x, y).partition().report()["collectives"] if is_first else ():
    print(f"{c['op']:15} {c['count']}x {c['payload_bytes'] / 1024:6.1f} kB  {c['source'].rsplit('/', 1)[-1]}")
expected, plain_step = state, jax.jit(step)
for _ in range(5):
    state, loss = sharded_step(state, x, y)
    expected, expected_loss = plain_step(expected, x, y)
    if is_first:
        print(f"loss {float(loss):.6f}, plain JAX {float(expected_loss):.6f}")
jax.tree.map(lambda a, b: np.testing.assert_allclose(shardc.gather(a), b, rtol=1e-3, atol=1e-5), state, expected)
if is_first:
    print("each of 4 devices holds a quarter of every weight; all agree with plain JAX")
