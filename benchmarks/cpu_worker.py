"""One side of a measurement in a process of its own: ``shardc`` or ``xla``, on so many cores (0: all).

Reads lines from standard input: a program's name compiles it (``NAME FOLDER``: ours with that cache), a number runs
so many steps. Answers with one line of JSON each.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

if int(sys.argv[2]):  # before anybody counts them
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
from cpu_programs import PROGRAMS, Program


class Xla:
    def __init__(self, program: Program, folder: str) -> None:
        start = time.perf_counter()
        self._step = jax.jit(program.function, donate_argnums=0).lower(*program.arguments).compile()
        self.seconds = time.perf_counter() - start
        found = self._step.memory_analysis()
        self.peak = (
            found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
            + found.temp_size_in_bytes
        )  # fmt: skip
        self._state, *self._rest = jax.device_put(program.arguments)

    def run(self, steps: int) -> Any:
        for _ in range(steps):
            self._state, value = self._step(self._state, *self._rest)
        return jax.block_until_ready(value)


class Ours:
    def __init__(self, program: Program, folder: str) -> None:
        import shardc

        os.environ["SHARDC_CACHE_DIR"] = folder
        jitted = shardc.jit(program.function, donate_argnums=0)
        start = time.perf_counter()
        self._step = jitted.compiled(*program.arguments)
        self.seconds = time.perf_counter() - start
        self.peak = self._step.executable.memory["peak_bytes"]
        # Arrays stay on the device, as on the other side.
        flat = jax.tree.leaves(program.arguments)
        placed = [self._step.driver.put(number, value) for number, value in enumerate(flat)]
        self._state, *self._rest = jax.tree.unflatten(jax.tree.structure(program.arguments), placed)

    def run(self, steps: int) -> Any:
        for _ in range(steps):
            self._state, value = self._step(self._state, *self._rest)
        return value  # complete when the call returns; read outside the measured time, as on the other side


def main() -> None:
    side = {"xla": Xla, "shardc": Ours}[sys.argv[1]]
    running: Any = None
    for line in sys.stdin:
        word, _, folder = line.strip().partition(" ")
        if word in PROGRAMS:
            running = side(PROGRAMS[word](), folder)
            print(json.dumps({"compile": running.seconds, "peak": running.peak}), flush=True)
            continue
        processor = time.process_time()
        start = time.perf_counter()
        value = running.run(int(word))
        seconds = time.perf_counter() - start
        answer = {
            "step": seconds / int(word),
            "processor": (time.process_time() - processor) / int(word),
            "value": float(np.asarray(value).sum(dtype=np.float64)),
            "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


main()
