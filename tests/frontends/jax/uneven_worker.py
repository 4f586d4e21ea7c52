"""One rank of a job that calls functions with sizes that the axes do not divide; says how many values it compared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardc
from shardc import Mesh, P

MESH = Mesh({"d": 4})


def compare(found: Any, expected: Any) -> int:
    """All ranks call it."""
    expected = np.asarray(expected)
    for shard in found.addressable_shards:
        assert np.array_equal(shard.data, expected[shard.index]), shard
    assert np.array_equal(shardc.gather(found), expected)
    return 1


def of_jax() -> int:
    """An array of JAX's of which no process has all."""
    over = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    x, rows = np.arange(32, dtype=np.float32), jax.sharding.NamedSharding(over, jax.sharding.PartitionSpec("d"))
    given = jax.make_array_from_callback(x.shape, rows, lambda at: x[at])
    shorter = shardc.jit(lambda x: x[1:] * 2, mesh=Mesh({"d": 2}), in_shardings=P("d"), out_shardings=P("d"))
    return compare(shorter(given), x[1:] * 2)


def main() -> None:
    compared = of_jax() if jax.process_count() == 2 else 0
    for size in (1, 3, 5, 8, 30):
        x = np.arange(size, dtype=np.float32)
        total = shardc.jit(jnp.cumsum, mesh=MESH, in_shardings=P("d"), out_shardings=P("d"))
        step = shardc.jit(lambda x: (x[1:], jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum())(x)), mesh=MESH)
        sums = total(shardc.array(x, (MESH, P("d"))))
        shorter, gradient = step(sums)
        expected = jnp.cumsum(x)
        compared += compare(sums, expected) + compare(shorter, expected[1:])
        compared += compare(gradient, jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum())(expected))
        if size % 4:
            compared += compare(total(x), expected)
            twice = shardc.jit(
                lambda x: jax.lax.with_sharding_constraint(x * 2, jax.sharding.PartitionSpec("d")), mesh=MESH
            )
            compared += compare(twice(x), x * 2)
    if shardc.process_index() == 0:
        print(f"compared {compared}")


if __name__ == "__main__":
    main()
