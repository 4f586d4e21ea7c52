"""Measures random plans of a program on this process's virtual devices or this job's ranks, and says what models say.

python benchmarks/plan_order_worker.py OUT.json PROGRAM PLANS ROUNDS MACHINE   (also inside an MPI job)

All plans are compiled first; then rounds over all of them follow one another. Rank 0 simulates each on the machine.
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
from random_plans import random_plans
from validity_programs import VALIDITY

import shardc
from shardc.partitioner.program import PartitionedProgram

#: Seconds that a plan runs in a round, about.
_ROUND = 0.05


class RunningPlan:
    """A plan on its placed arguments."""

    def __init__(self, partitioned: PartitionedProgram, arguments: Any) -> None:
        self.driver = partitioned.compile().driver  # type: ignore[attr-defined]
        self.values: list[Any] = [self.driver.put(n, np.asarray(a)) for n, a in enumerate(jax.tree.leaves(arguments))]
        self.state = len(jax.tree.leaves(arguments[0]))
        self.samples: list[float] = []
        self.run(1), self.run(1)
        self.steps = max(1, min(100, int(_ROUND / self.run(1))))

    def run(self, steps: int) -> float:
        """Seconds of one step, the slowest rank's."""
        self.driver.transport.exchange_objects(0)
        start = time.perf_counter()
        for _ in range(steps):
            results = self.driver(self.values)
            self.values[: self.state] = results[: self.state]
        return float(max(self.driver.transport.exchange_objects((time.perf_counter() - start) / steps)))


def main() -> None:
    out, name, count, rounds, machine = sys.argv[1:]
    case = VALIDITY[name](4)
    jitted = shardc.jit(
        case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs, donate_argnums=0
    )
    plans = list(random_plans(jitted.program(*case.arguments), machine, int(count)))
    running = [RunningPlan(p.chosen, case.arguments) for p in plans]
    for _ in range(int(rounds)):
        for r in running:
            r.samples.append(r.run(r.steps))
    if shardc.process_index():
        return
    answer: dict[str, Any] = {
        "title": case.name,
        "cost": [p.cost for p in plans],
        "simulated": [p.chosen.simulate(machine).step_seconds for p in plans],
        "measured": [statistics.median(r.samples) for r in running],
        "halves": [[statistics.median(r.samples[k::2]) for r in running] for k in (0, 1)],
    }
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
