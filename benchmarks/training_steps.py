"""Compiling training steps for 4 virtual devices: shardc against XLA with forced host devices.

Both sides trace, lower and compile the same JAX function; ours runs with an empty object cache and again with a
warm one. Ratios are XLA's time over ours: above 1, we are faster. `device_steps` times the steps.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from programs import CASES
from worker import Worker


def measure(name: str) -> dict[str, Any]:
    """The seconds of both sides for one case."""
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        ours = Worker("device_worker.py", "shardc")
        xla = Worker("device_worker.py", "xla", flags=f"--xla_force_host_platform_device_count={case.mesh.size}")
        cold = ours.ask(f"{name} {folder}")["compile"]
        theirs = xla.ask(name)["compile"]
        warm = ours.ask(f"{name} {folder}")["compile"]
        losses = [side.ask("1")["loss"] for side in (ours, xla)]
        ours.close()
        xla.close()
    np.testing.assert_allclose(*losses, rtol=1e-3)
    return {"case": case.name, "cold": (cold, theirs), "cached": (warm, theirs)}


def rows() -> list[tuple[str, str, str, str, str]]:
    """(case, cache, ours, XLA, ratio) as text."""
    out = []
    for name in CASES:
        found = measure(name)
        for cache in ("cold", "cached"):
            mine, other = found[cache]
            out.append((found["case"], cache, f"{mine * 1e3:.1f} ms", f"{other * 1e3:.1f} ms", f"{other / mine:.2f}"))
    return out
