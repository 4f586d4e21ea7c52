"""Steps of JAX are in flight on ranks while shardc's own programs and operations begin: none waits for the other."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import shardc
from shardc import Mesh, P

x = np.ones((8, 8), np.float32)
ours = shardc.array(x, (Mesh({"d": 4}), P("d")))
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
theirs = jax.device_put(x, NamedSharding(mesh, PartitionSpec("d")))

begun = [jax.jit(lambda x: x + 1)(theirs)]
doubled = shardc.jit(lambda x: x * 2)(ours)
begun.append(jax.jit(lambda x: x + 2)(theirs))
product = shardc.jit(lambda x, y: x @ y)(theirs, ours)
begun.append(jax.jit(lambda x: x + 3)(theirs))
total = float(shardc.gather((ours + 1).sum()))
assert float(shardc.gather(doubled).sum()) == 128
assert float(shardc.gather(product).sum()) == 512
assert total == 128
for n, made in enumerate(begun):
    assert all((shard.data == n + 2).all() for shard in made.addressable_shards)
print("done")
