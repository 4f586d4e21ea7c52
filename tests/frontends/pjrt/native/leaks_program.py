"""Calls of JAX of many kinds, and what is left of them; run by `test_pjrt_leaks`. Its argument: how many rounds."""

from __future__ import annotations

import contextlib
import gc
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardc.frontends.pjrt.native.library import library
from shardc.hlo.config import Config

mesh = jax.make_mesh((2,), ("x",))
sharding = NamedSharding(mesh, PartitionSpec("x"))
add = jax.jit(lambda x, y: (x + y, x * 2.0))
give = jax.jit(lambda x: x + 1.0, donate_argnums=0)
total = jax.jit(lambda x: x.sum(), in_shardings=sharding)
host = jax.jit(lambda x: jax.pure_callback(np.sin, x, x))


def one_round(number: int) -> None:
    x = jax.device_put(np.full((8,), number, "f4"))
    y, z = add(x, x)
    w = give(y)
    with contextlib.suppress(RuntimeError):
        y + 1  # it was given away
    spread = jax.device_put(np.arange(16.0, dtype="f4"), sharding)
    assert float(total(spread)) == 120.0
    view = np.asarray(w)
    w.delete()
    assert view[0] == 2 * number + 1
    jax.device_put(z, jax.devices()[1]).block_until_ready()
    np.from_dlpack(z)
    jnp.from_dlpack(np.array(view))
    if number % 100 == 0:
        host(z).block_until_ready()
        [jax.jit(lambda v: v)(x)]


def left() -> tuple[int, ...]:
    """Pieces of native memory, and bytes by device."""
    gc.collect()
    native = library(Config.from_environment().cache_dir)
    statistics = [d.memory_stats() or {} for d in jax.devices()]
    return native.pieces_in_use(), *(s["bytes_in_use"] for s in statistics)


for n in range(100):
    one_round(n)
before = left()
for n in range(int(sys.argv[1])):
    one_round(n)
after = left()
print("left:", *(b - a for a, b in zip(before, after, strict=True)))
