"""A rank of an MPI library's own collectives, by mpi4py: seconds per call, printed by rank 0 as a line of JSON.

python benchmarks/mpi_worker.py SECONDS OP:BYTES ...   (inside an MPI job; needs no shardc)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _calls(op: str, nbytes: int) -> Callable[[], object]:
    """The call for float32 buffers; ``nbytes`` is the larger of a rank's operand and result."""
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    members = world.size
    n = nbytes // 4
    whole, other = np.zeros(n, np.float32), np.zeros(n, np.float32)
    part = np.zeros(n // members, np.float32)
    after, before = (world.rank + 1) % members, (world.rank - 1) % members
    ways: dict[str, Callable[[], object]] = {
        "all-reduce": lambda: world.Allreduce(whole, other),
        "all-gather": lambda: world.Allgather(part, whole),
        "reduce-scatter": lambda: world.Reduce_scatter_block(whole, part),
        "all-to-all": lambda: world.Alltoall(whole, other),
        "collective-permute": lambda: world.Sendrecv(whole, after, recvbuf=other, source=before),
    }
    return ways[op]


def seconds_per_call(
    call: Callable[[], object], meet: Callable[[], object], most: Callable[[float], float], budget: float
) -> float:
    """Seconds of one call, the slowest rank's; ``budget`` seconds are spent, about."""
    meet()
    start = time.perf_counter()
    call(), call()
    one = most((time.perf_counter() - start) / 2)
    times = max(2, min(300, int(budget / max(one, 1e-6))))
    meet()
    start = time.perf_counter()
    for _ in range(times):
        call()
    return most((time.perf_counter() - start) / times)


def main() -> None:
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD
    budget, found = float(sys.argv[1]), {}
    for word in sys.argv[2:]:
        op, nbytes = word.split(":")
        call = _calls(op, int(nbytes))
        found[word] = seconds_per_call(call, world.Barrier, lambda x: world.allreduce(x, MPI.MAX), budget)
    if world.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
