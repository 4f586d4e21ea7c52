"""Rounds of computing and an all-reduce of 16 MB: seconds per step from rank 0.

python benchmarks/overlap_worker.py KIND STEPS   (in an MPI job; SHARDC_OVERLAP says whether transfers overlap)

Each round computes with the sum of the last round but one, and adds up over ranks what came out. ``skewed``: even and
odd ranks compute in turn, so that each round waits for one of them unless transfers are under way beside the next.
``even``: everybody always computes.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import shardc
from shardc import Mesh, P

WORDS, SIDE, TURNS, ROUNDS = 4 << 20, 256, 20, 6


def _busy(x: Any, turns: Any) -> Any:
    """Products of 256 x 256, so many after each other."""
    return jax.lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ x), x)


def _local(skewed: bool, x: Any, w: Any) -> Any:
    rank = jax.lax.axis_index("x")
    y, sums = w, [x, x]
    for k in range(ROUNDS):
        y = y + 1e-9 * sums[-2][0]
        y = _busy(y, jnp.where((rank + k) % 2 == 0, 2 * TURNS, 0) if skewed else TURNS)
        sums.append(jax.lax.psum(x * y[0, 0], "x"))
    return sums[-1]


def main() -> None:
    kind, steps = sys.argv[1], int(sys.argv[2])
    ranks = shardc.process_count()
    mesh = Mesh({"x": ranks})
    spec = PartitionSpec("x")
    local = lambda x, w: _local(kind == "skewed", x, w)  # noqa: E731
    step = jax.shard_map(local, mesh=mesh.to_jax(), in_specs=(spec, PartitionSpec()), out_specs=spec, check_vma=False)
    x, w = np.ones(ranks * WORDS, np.float32), np.full((SIDE, SIDE), 1e-3, np.float32)
    compiled = shardc.jit(step, mesh=mesh, in_shardings=(P("x"), P()), out_shardings=P("x")).compiled(x, w)
    placed = [compiled.driver.put(n, value) for n, value in enumerate((x, w))]
    compiled(*placed)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        compiled(*placed)
        times.append(time.perf_counter() - start)
    if shardc.process_index() == 0:
        print(json.dumps({"step": sorted(times)[steps // 2]}), flush=True)


main()
