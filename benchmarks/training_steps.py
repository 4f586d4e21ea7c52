"""Training steps on 4 virtual devices: shardc against XLA with forced host devices, interleaved in one run.

Both sides trace, lower and compile the same JAX function; ours runs with an empty object cache and again with a
warm one. Ratios are XLA's time over ours: above 1, we are faster.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

import numpy as np
from programs import CASES
from worker import Worker

ROUNDS, STEPS = 9, 3


def measure(name: str) -> dict[str, Any]:
    """One case, both sides interleaved; seconds are medians."""
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        ours = Worker("device_worker.py", "shardc")
        xla = Worker("device_worker.py", "xla", flags=f"--xla_force_host_platform_device_count={case.mesh.size}")
        cold = ours.ask(f"{name} {folder}")["compile"]
        theirs = xla.ask(name)["compile"]
        warm = ours.ask(f"{name} {folder}")["compile"]
        ours.ask("1"), xla.ask("1")
        pairs = [(ours.ask(str(STEPS)), xla.ask(str(STEPS))) for _ in range(ROUNDS)]
        ours.close()
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
