"""A dropless mixture of experts: each token goes to the device of its expert, and only the rows that must be are sent.

python dropless_experts.py, or on ranks: shardc mpiexec -n 4 python dropless_experts.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import shardc

DEVICES, EXPERTS, TOKENS, WIDTH = 4, 8, 64, 32
HERE = EXPERTS // DEVICES
mesh = jax.sharding.AbstractMesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))


def products(rows, up, down, sizes):
    return jax.lax.ragged_dot(jax.nn.gelu(jax.lax.ragged_dot(rows, up, sizes)), down, sizes)


def exchange(rows, room, sizes, arrived):
    """Rows in the order of their receivers, ``sizes`` for each; ``arrived`` come, in the order of their senders."""
    first = jnp.cumsum(arrived) - arrived
    targets = jax.lax.all_to_all(first, "x", 0, 0, tiled=True)
    output = jax.lax.pcast(jnp.zeros((room, *rows.shape[1:]), rows.dtype), "x", to="varying")  # for its gradient
    return jax.lax.ragged_all_to_all(rows, output, jnp.cumsum(sizes) - sizes, sizes, targets, arrived, axis_name="x")


def layer(x, router, up, down):
    """One device's tokens; it has the experts ``up`` and ``down``. Any number of tokens may choose an expert."""
    expert = jnp.argmax(x @ router, axis=1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=EXPERTS).reshape(DEVICES, HERE)
    counts = jax.lax.all_to_all(sizes, "x", 0, 0, tiled=True)  # [sender, expert] of this device's experts
    sent, arrived = sizes.sum(1), counts.sum(1)
    rows = exchange(x[order], TOKENS, sent, arrived)
    # Rows come by sender, each sender's by expert: here they are put in the order of experts, and back.
    owner = jnp.repeat(jnp.tile(jnp.arange(HERE), DEVICES), counts.reshape(-1), total_repeat_length=len(rows))
    by_expert = jnp.argsort(jnp.where(jnp.arange(len(rows)) < arrived.sum(), owner, HERE))
    done = products(rows[by_expert], up, down, counts.sum(0))
    back = exchange(done[jnp.argsort(by_expert)], len(x), arrived, sent)
    return back[jnp.argsort(order)]


random = np.random.default_rng(0)
shapes = ((TOKENS, WIDTH), (WIDTH, EXPERTS), (EXPERTS, WIDTH, 4 * WIDTH), (EXPERTS, 4 * WIDTH, WIDTH))
x, router, up, down = (random.normal(0, 0.3, s).astype(np.float32) for s in shapes)
specs = (P("x"), P(), P("x"), P("x"))
parallel = jax.shard_map(layer, mesh=mesh, in_specs=specs, out_specs=P("x"))
step = shardc.jit(parallel, mesh=shardc.Mesh({"x": DEVICES}), in_shardings=specs, out_shardings=P("x"))
got = shardc.gather(step(x, router, up, down))

every = jnp.einsum("teh,ehd->ted", jax.nn.gelu(jnp.einsum("td,edh->teh", x, up)), down)  # all experts, one device
dense = np.asarray(every[jnp.arange(TOKENS), jnp.argmax(x @ router, axis=1)])
np.testing.assert_allclose(got, dense, rtol=1e-4, atol=1e-5)
print("tokens of each expert:", np.bincount(np.argmax(x @ router, axis=1), minlength=EXPERTS))
print(f"largest difference from the dense computation: {np.abs(got - dense).max():.1e}")
