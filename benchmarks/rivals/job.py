"""What all rivals' programs share: their command line, their clock, and the file with what came out.

    mpiexec -n 2 python with_numba.py NAME SIZE STEPS CALLS FILE

A program is ``make(comm, *arrays)``, which takes this rank's parts and gives ``advance(steps)`` and ``parts()``: what
this rank has of each result. The last line of output is JSON: wall and processor seconds of a step of the first rank,
by call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from in_numpy import PROGRAMS

Made = tuple[Callable[[int], None], Callable[[], tuple[Any, ...]]]


def run(programs: Mapping[str, Callable[..., Made]], comm: Any) -> None:
    name, size, steps, calls, file = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    if name not in programs:
        sys.exit(f"no program of the name {name}")
    arrays, split = PROGRAMS[name].start(size), PROGRAMS[name].split
    advance, parts = programs[name](comm, *(np.array_split(a, comm.size, split)[comm.rank].copy() for a in arrays))
    advance(steps)
    found = [comm.gather(part) for part in parts()]
    if comm.rank == 0:
        np.savez(file, *(np.concatenate(f, axis=split) for f in found))
    times = []
    for _ in range(calls):
        comm.Barrier()
        wall, processor = time.perf_counter(), time.process_time()
        advance(steps)
        times.append(((time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps))
    if comm.rank == 0:
        print(json.dumps(times))
