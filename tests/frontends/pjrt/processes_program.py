"""One rank of a job: an unmodified JAX script over all devices, which prints what rank 0 sees."""

import hashlib
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if len(sys.argv) > 1:  # jax.distributed, started without MPI
    port, count, rank = sys.argv[1:]
    jax.distributed.initialize(f"localhost:{port}", int(count), int(rank))

me, count = jax.process_index(), jax.process_count()
devices = jax.devices()
seen = {"processes": count, "ids": [d.id for d in devices], "of": [d.process_index for d in devices]}
assert [d.id for d in jax.local_devices()] == [d.id for d in devices if d.process_index == me]

mesh = Mesh(np.array(devices), "x")
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())


def digest(tree):
    """Of whole values, which every process has."""
    hashed = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        hashed.update(np.asarray(leaf).tobytes())
    return hashed.hexdigest()[:16]


def local():
    assert float(jax.jit(lambda x: x * 2 + me)(1.0)) == 2.0 + me
    x = jnp.arange(1000.0) * (me + 1)
    assert float(x.sum()) == 499500.0 * (me + 1)


def arrays():
    rows = np.arange(8 * len(devices), dtype=np.float32).reshape(len(devices), 8)
    share = rows.shape[0] // count
    mine = rows[me * share : (me + 1) * share]
    made = jax.make_array_from_process_local_data(split, mine, rows.shape)
    seen["sum"] = float(jax.jit(lambda v: (v * v).sum(), out_shardings=whole)(made))
    put = jax.device_put(rows, split)
    assert all(np.array_equal(s.data, rows[s.index]) for s in put.addressable_shards)
    seen["gathered"] = digest(multihost_utils.process_allgather(made, tiled=True))
    seen["ranks"] = np.asarray(multihost_utils.process_allgather(np.int32(me))).tolist()
    turned = jax.jit(lambda v: v.T @ v, out_shardings=NamedSharding(mesh, P(None, None)))(put)
    seen["product"] = digest(turned)
    multihost_utils.sync_global_devices("here")


def backwards():
    """The mesh's devices in another order than the processes'."""
    turned = NamedSharding(Mesh(np.array(devices[::-1]), "x"), P("x"))
    values = np.arange(4.0 * len(devices), dtype=np.float32)
    x = jax.make_array_from_callback(values.shape, turned, lambda index: values[index])
    seen["backwards"] = digest(jax.jit(jnp.cumsum, out_shardings=NamedSharding(turned.mesh, P()))(x))


def training():
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {"a": jax.random.normal(keys[0], (16, 32)), "b": jax.random.normal(keys[1], (32, 16))}
    specs = {"a": P(None, "x"), "b": P("x")}
    weights = {name: jax.device_put(w, NamedSharding(mesh, specs[name])) for name, w in weights.items()}
    data = jax.device_put(jax.random.normal(keys[2], (8 * len(devices), 16)), split)

    def loss(w, x):
        return jnp.mean((jax.nn.gelu(x @ w["a"]) @ w["b"] - x) ** 2)

    @jax.jit
    def step(w, x):
        value, grads = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, grads), value

    losses = []
    for _ in range(5):
        weights, value = step(weights, data)
        losses.append(value)
    seen["losses"] = [float(v) for v in losses]
    seen["weights"] = digest(multihost_utils.process_allgather(weights, tiled=True))


def calls():
    """Calls of Python: one for a whole value, on the first device; one for each device of a manual computation."""
    mine = []
    x = jax.device_put(np.arange(2.0 * len(devices), dtype=np.float32), split)

    @jax.jit
    def f(v):
        jax.debug.callback(lambda w: mine.append(w.shape), v)
        return v + 1

    f(x).block_until_ready()
    jax.effects_barrier()
    assert mine == ([(2 * len(devices),)] if me == 0 else []), mine
    parts = []

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def g(v):
        made = jax.pure_callback(lambda w: (parts.append(w.shape), w * 2)[1], jax.ShapeDtypeStruct(v.shape, v.dtype), v)
        return made + jax.lax.psum(v.sum(), "x")

    seen["manual"] = digest(multihost_utils.process_allgather(g(x), tiled=True))
    assert parts == [(2,)] * len(jax.local_devices()), parts


for part in (local, arrays, backwards, training, calls):
    part()
    print(me, part.__name__, file=sys.stderr, flush=True)
if me == 0:
    print(json.dumps(seen), flush=True)
