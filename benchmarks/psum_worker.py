"""JAX's collectives in one process on forced host devices: seconds per call, as a line of JSON.

python benchmarks/psum_worker.py SECONDS OP:BYTES ...   (XLA_FLAGS says how many devices; needs no shardc)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from mpi_worker import seconds_per_call


def _calls(op: str, nbytes: int) -> Callable[[], object]:
    """The call for float32 arrays; ``nbytes`` is the larger of a device's operand and result."""
    mesh = jax.make_mesh((len(jax.devices()),), ("x",))
    members = mesh.size
    ring = [(k, (k + 1) % members) for k in range(members)]
    ways = {
        "all-reduce": partial(jax.lax.psum, axis_name="x"),
        "all-gather": partial(jax.lax.all_gather, axis_name="x", tiled=True),
        "reduce-scatter": partial(jax.lax.psum_scatter, axis_name="x", tiled=True),
        "all-to-all": partial(jax.lax.all_to_all, axis_name="x", split_axis=0, concat_axis=0, tiled=True),
        "collective-permute": partial(jax.lax.ppermute, axis_name="x", perm=ring),
    }
    split = PartitionSpec("x")
    whole = op in ("all-reduce", "all-gather")
    step = jax.jit(
        jax.shard_map(
            ways[op], mesh=mesh, in_specs=split, out_specs=PartitionSpec() if whole else split, check_vma=False
        )
    )
    n = nbytes // 4 // (members if op == "all-gather" else 1)
    x = jax.device_put(np.zeros(n * members, np.float32), NamedSharding(mesh, split))
    return lambda: jax.block_until_ready(step(x))


def main() -> None:
    budget, found = float(sys.argv[1]), {}
    for word in sys.argv[2:]:
        op, nbytes = word.split(":")
        found[word] = seconds_per_call(_calls(op, int(nbytes)), lambda: None, lambda x: x, budget)
    print(json.dumps(found), flush=True)


main()
