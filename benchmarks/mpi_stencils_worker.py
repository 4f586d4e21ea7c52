"""Runs one of the programs of ``rivals/in_numpy.py`` with shardc; arguments and output are as in ``rivals/job.py``."""

from __future__ import annotations

import inspect
import json
import sys
import time
from typing import Any

import numpy as np
from rivals.in_numpy import PROGRAMS

import shardc
from shardc import Mesh, P


def main() -> None:
    name, size, steps, calls, file = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    program, ranks = PROGRAMS[name], shardc.process_count()
    state = program.start(size)

    def advance(*state: Any) -> Any:
        return shardc.fori_loop(0, steps, lambda _, state: program.step(*state), state)

    advance.__signature__ = inspect.signature(program.step)  # type: ignore[attr-defined]
    spec = P(*[None] * program.split, "ranks")
    traced = shardc.trace(
        advance,
        *state,
        mesh=Mesh({"ranks": ranks}),
        in_shardings=(spec,) * len(state),
        out_shardings=(spec,) * len(state),
        donate_argnums=tuple(range(len(state))),
    )
    run = traced.partition().compile("cpu")
    state = run(*(run.driver.put(k, a) for k, a in enumerate(state)))
    found = [shardc.gather(a) for a in state]
    if shardc.process_index() == 0:
        np.savez(file, *found)
    times = []
    for _ in range(calls):
        wall, processor = time.perf_counter(), time.process_time()
        state = run(*state)
        times.append(((time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps))
    if shardc.process_index() == 0:
        print(json.dumps(times))


if __name__ == "__main__":
    main()
