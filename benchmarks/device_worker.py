"""One side of a measurement on several devices in a process of its own: ``shardc`` or ``xla``.

Reads lines from standard input: ``CASE FOLDER`` compiles a program (ours with that cache), a number runs so many
steps. Answers with one line of JSON each. XLA's devices are forced host devices (``XLA_FLAGS``). With ``ranks CASE
STEPS`` as arguments, in an MPI job, our steps run on its ranks and rank 0 prints one line.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
from device_programs import DEVICE_CASES
from programs import CASES, Case

from shardc.sharding.notations.partition_spec import P

ALL = {**CASES, **DEVICE_CASES}


class Xla:
    def __init__(self, case: Case, folder: str) -> None:
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(
            jax.make_mesh(tuple(case.mesh.shape.values()), tuple(case.mesh.shape)).devices, tuple(case.mesh.shape)
        )

        def place(specs: Any) -> Any:
            return jax.tree.map(
                lambda s: NamedSharding(mesh, PartitionSpec(*s)), specs, is_leaf=lambda x: isinstance(x, P)
            )

        inputs, outputs = place(case.in_specs), place(case.out_specs)
        jitted = jax.jit(case.function, in_shardings=inputs, out_shardings=outputs, donate_argnums=0)
        start = time.perf_counter()
        with jax.set_mesh(mesh):
            self._step = jitted.trace(*case.arguments).lower().compile()
        self.seconds = time.perf_counter() - start
        self._state, *self._rest = (jax.device_put(a, s) for a, s in zip(case.arguments, inputs, strict=True))

    def run(self, steps: int) -> Any:
        for _ in range(steps):
            self._state, value = self._step(self._state, *self._rest)
        jax.block_until_ready(self._state)
        return jax.block_until_ready(value)


class Ours:
    def __init__(self, case: Case, folder: str) -> None:
        import shardc

        if folder:
            os.environ["SHARDC_CACHE_DIR"] = folder
        jitted = shardc.jit(
            case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs, donate_argnums=0
        )
        start = time.perf_counter()
        self._step = jitted.compiled(*case.arguments)
        self.seconds = time.perf_counter() - start
        # Arrays stay on their devices, as on the other side.
        flat = jax.tree.leaves(case.arguments)
        placed = [self._step.driver.put(number, value) for number, value in enumerate(flat)]
        self._state, *self._rest = jax.tree.unflatten(jax.tree.structure(case.arguments), placed)

    def run(self, steps: int) -> Any:
        for _ in range(steps):
            self._state, value = self._step(self._state, *self._rest)
        return value


def _timed(running: Xla | Ours, steps: int) -> dict[str, float]:
    processor, start = time.process_time(), time.perf_counter()
    value = running.run(steps)
    seconds = time.perf_counter() - start
    return {
        "step": seconds / steps,
        "processor": (time.process_time() - processor) / steps,
        "loss": float(np.asarray(value)),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def ranks(name: str, rounds: int) -> None:
    """Our step on the ranks of this job."""
    running = Ours(ALL[name](), "")
    running.run(2)
    found = sorted(_timed(running, 3)["step"] for _ in range(rounds))
    import shardc

    if shardc.process_index() == 0:
        print(json.dumps({"step": found[len(found) // 2]}), flush=True)


def main() -> None:
    if sys.argv[1] == "ranks":
        return ranks(sys.argv[2], int(sys.argv[3]))
    side = {"xla": Xla, "shardc": Ours}[sys.argv[1]]
    running: Any = None
    for line in sys.stdin:
        word, _, folder = line.strip().partition(" ")
        if word in ALL:
            running = side(ALL[word](), folder)
            print(json.dumps({"compile": running.seconds}), flush=True)
        else:
            print(json.dumps(_timed(running, int(word))), flush=True)
    return None


main()
