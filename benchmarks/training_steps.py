"""Training steps on 4 virtual devices: shardc against XLA with forced host devices, interleaved in one run.

Both sides trace, lower and compile the same JAX function; ours runs with an empty object cache and again with a
warm one. Ratios are XLA's time over ours: above 1, we are faster.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

import numpy as np
from programs import CASES, Case
from worker import Worker

import shardc

ROUNDS, STEPS = 9, 3


class Ours:
    """The same case through `shardc.jit`."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._jitted = shardc.jit(
            case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs
        )
        self._state, *self._rest = case.arguments

    def compile_seconds(self) -> float:
        """Seconds of the first call's preparation; later ones of this object find what it compiled."""
        case = self._case
        jitted = shardc.jit(case.function, mesh=case.mesh, in_shardings=case.in_specs, out_shardings=case.out_specs)
        start = time.perf_counter()
        jitted.compiled(*case.arguments)
        return time.perf_counter() - start

    def prepare(self) -> None:
        """Compile for running, and make the first step."""
        self.run(1)

    def run(self, steps: int) -> dict[str, float]:
        start = time.perf_counter()
        for _ in range(steps):
            self._state, loss = self._jitted(self._state, *self._rest)
        value = float(np.asarray(loss))
        return {"step": (time.perf_counter() - start) / steps, "loss": value}


def measure(name: str) -> dict[str, Any]:
    """One case, both sides interleaved; seconds are medians."""
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDC_CACHE_DIR"] = folder
        ours = Ours(case)
        xla = Worker("xla_worker.py", flags=f"--xla_force_host_platform_device_count={case.mesh.size}")
        cold = ours.compile_seconds()
        theirs = xla.ask(name)["compile"]
        warm = ours.compile_seconds()
        ours.prepare()
        xla.ask("1")
        pairs = [(ours.run(STEPS), xla.ask(str(STEPS))) for _ in range(ROUNDS)]
        xla.close()
    np.testing.assert_allclose(pairs[0][0]["loss"], pairs[0][1]["loss"], rtol=1e-3)
    mine = statistics.median(a["step"] for a, _ in pairs)
    other = statistics.median(b["step"] for _, b in pairs)
    return {
        "case": case.name,
        "step": (mine, other, statistics.median(b["step"] / a["step"] for a, b in pairs)),
        "compile, cold": (cold, theirs, theirs / cold),
        "compile, cached": (warm, theirs, theirs / warm),
    }


def rows() -> list[tuple[str, str, str, str, str]]:
    """(case, what, ours, XLA, ratio) as text."""
    out = []
    for name in CASES:
        found = measure(name)
        for what in ("step", "compile, cold", "compile, cached"):
            mine, other, ratio = found[what]
            out.append((found["case"], what, f"{mine * 1e3:.1f} ms", f"{other * 1e3:.1f} ms", f"{ratio:.2f}"))
    return out
