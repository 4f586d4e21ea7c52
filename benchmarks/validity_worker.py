"""Measures the programs of `validity_programs` on this process's virtual devices or this job's ranks, and predicts.

python benchmarks/validity_worker.py OUT.json DEVICES ROUNDS MACHINE[,MACHINE] [PROGRAM ...]   (also inside an MPI job)

All programs are compiled first; then rounds over all of them follow one another. With a machine the process also
simulates each program on it (`-`: none).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
from programs import Case
from validity_programs import VALIDITY

import shardc

#: Seconds that a program runs in a round, about.
_ROUND = 0.1


class Running:
    """A compiled program on its placed arguments."""

    def __init__(self, case: Case) -> None:
        jitted = shardc.jit(
            case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs, donate_argnums=0
        )
        self.compiled = jitted.compiled(*case.arguments)
        flat = [np.asarray(a) for a in jax.tree.leaves(case.arguments)]
        self._driver = self.compiled.driver
        self._values: list[Any] = [self._driver.put(n, a) for n, a in enumerate(flat)]
        self._state = len(jax.tree.leaves(case.arguments[0]))
        self.samples: list[float] = []
        self.steps = 1

    def run(self) -> float:
        """Seconds of one step."""
        start = time.perf_counter()
        for _ in range(self.steps):
            results = self._driver(self._values)
            self._values[: self._state] = results[: self._state]
        return (time.perf_counter() - start) / self.steps


def main() -> None:
    out, devices, rounds, machines, *names = sys.argv[1:]
    programs = {name: Running(VALIDITY[name](int(devices))) for name in names or VALIDITY}
    for running in programs.values():
        running.run(), running.run()
        transport = running.compiled.driver.transport
        seconds = max(transport.exchange_objects(running.run()))
        running.steps = max(1, min(200, int(_ROUND / seconds)))
    for _ in range(int(rounds)):
        for running in programs.values():
            transport = running.compiled.driver.transport
            transport.exchange_objects(0)
            running.samples.append(max(transport.exchange_objects(running.run())))
    if shardc.process_index():
        return
    answer: dict[str, Any] = {}
    for name, running in programs.items():
        predicted = {}
        for machine in machines.split(",") if machines != "-" else ():
            simulation = running.compiled.partitioned().simulate(machine)
            predicted[machine] = simulation.step_seconds
        low, _, high = statistics.quantiles(running.samples, n=4) if len(running.samples) > 1 else (0, 0, 0)
        answer[name] = {
            "title": VALIDITY[name](int(devices)).name,
            "measured": statistics.median(running.samples),
            "spread": (low, high),
            "best": min(running.samples),
            "predicted": predicted,
        }
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
