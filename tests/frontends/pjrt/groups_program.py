"""One rank of a job of three: programs over devices of some of its processes, and compiled by threads in any order.

``groups_program.py PARTS`` or, under jax.distributed, ``groups_program.py PARTS PORT COUNT RANK``; parts are names with
commas between. Where there is one process alone it plays all three. Each writes a line of JSON: what it saw, by name.
"""

import hashlib
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if len(sys.argv) > 2:
    port, count, rank = sys.argv[2:]
    jax.distributed.initialize(f"localhost:{port}", int(count), int(rank))

devices, me, alone = jax.devices(), jax.process_index(), jax.process_count() == 1
seen = {}


def process_of(device):
    return device.id // 2 if alone else device.process_index


def digest(value):
    return hashlib.sha256(np.asarray(value).tobytes()).hexdigest()[:16]


def see(name, array):
    if array.sharding.has_addressable_devices:
        seen[name] = digest(array)


def mesh_of(members, turned=False):
    found = [d for d in devices if process_of(d) in members]
    return Mesh(np.array(found[::-1] if turned else found), "x")


def run_group(*members, turned=False):
    mesh = mesh_of(members, turned)
    split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    values = np.random.default_rng(sum(members)).standard_normal((12, 8), np.float32)
    x = jax.make_array_from_callback(values.shape, split, lambda index: values[index], dtype=values.dtype)
    name = f"{members} {turned}"
    see(f"{name} product", jax.jit(lambda v: v @ v.T, out_shardings=whole)(x))
    f = jax.shard_map(lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    see(f"{name} manual", jax.jit(f)(x))
    see(f"{name} whole", jax.jit(jnp.tanh, out_shardings=whole)(jax.device_put(values, split)))


def groups():
    """All see the programs in one order; those of other processes are compiled, and run elsewhere."""
    for members in ((1,), (0, 2), (0, 1), (0, 1, 2), (1, 2), (2,), (0, 2)):
        run_group(*members)
    run_group(0, 2, turned=True)


def orders():
    """Processes have programs of their own between those that they have together."""
    mine = {0: ((0, 1), (0,), (0, 2)), 1: ((1,), (0, 1), (1,), (1, 2)), 2: ((2,), (1, 2), (0, 2))}
    for members in dict.fromkeys(m for p in range(3) if alone or p == me for m in mine[p]):
        run_group(*members)


def threads():
    """Programs are compiled by several threads, in each process in another order, and run in one order."""
    whole = NamedSharding(mesh_of((0, 1, 2)), P())
    split = NamedSharding(whole.mesh, P("x"))
    values = np.random.default_rng(3).standard_normal((12, 8), np.float32)
    x = jax.make_array_from_callback(values.shape, split, lambda index: values[index])
    lowered = [jax.jit(lambda v, n=n: jnp.sin(v * n).sum(0), out_shardings=whole).lower(x) for n in range(8)]
    order = random.Random(me).sample(range(8), 8)
    with ThreadPoolExecutor(4) as pool:
        compiled = dict(zip(order, pool.map(lambda n: lowered[n].compile(), order), strict=True))
    for n in range(8):
        see(f"thread {n}", compiled[n](x))


def missing():
    """Process 2 does not come to a step of a program of processes 0 and 2; process 1 has nothing to do with it."""
    if me != 1:
        split = NamedSharding(mesh_of((0, 2)), P("x"))
        x = jax.device_put(np.arange(8.0, dtype=np.float32), split)
        step = jax.jit(lambda v: v * v.sum())
        step(x).block_until_ready()
        if me == 2:
            time.sleep(60)
        step(x).block_until_ready()


for part in sys.argv[1].split(","):
    {"groups": groups, "orders": orders, "threads": threads, "missing": missing}[part]()
sys.stdout.write(json.dumps(seen) + "\n")
sys.stdout.flush()
