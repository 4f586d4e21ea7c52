"""Training steps on several devices: shardc's virtual devices (and MPI ranks) against XLA's forced host devices.

python benchmarks/device_steps.py [CASE-DEVICES ...] [--rounds N] [--ranks]

Both sides are processes of their own and run in turn; ratios are XLA's time over ours: above 1, we are faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from device_programs import DEVICE_CASES
from installed import byte_compile
from worker import Worker

#: Seconds that one side runs in a round, about.
_ROUND = 0.2


def measure(name: str, rounds: int = 7) -> dict[str, Any]:
    """One case: seconds per step (medians), the ratio's median and spread, compile times."""
    case = DEVICE_CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        ours = Worker("device_worker.py", "shardc")
        xla = Worker("device_worker.py", "xla", flags=f"--xla_force_host_platform_device_count={case.mesh.size}")
        cold, theirs = ours.ask(f"{name} {folder}"), xla.ask(name)
        first = ours.ask("1"), xla.ask("1")
        np.testing.assert_allclose(first[0]["loss"], first[1]["loss"], rtol=2e-3)
        second = ours.ask("1"), xla.ask("1")
        steps = max(1, min(100, int(_ROUND / max(second[1]["step"], 1e-4))))
        ours.ask(str(steps)), xla.ask(str(steps))
        pairs = [(ours.ask(str(steps)), xla.ask(str(steps))) for _ in range(rounds)]
        ours.close()
        xla.close()
    ratios = sorted(b["step"] / a["step"] for a, b in pairs)
    return {
        "case": case.name,
        "devices": case.mesh.size,
        "step": statistics.median(a["step"] for a, _ in pairs),
        "xla": statistics.median(b["step"] for _, b in pairs),
        "processor": statistics.median(b["processor"] / a["processor"] for a, b in pairs),
        "ratio": statistics.median(ratios),
        "spread": (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
        "compile": (cold["compile"], theirs["compile"]),
    }


def on_ranks(name: str, ranks: int = 4, rounds: int = 5) -> float:
    """Seconds per step on so many ranks of MPI (median)."""
    worker = str(Path(__file__).with_name("device_worker.py"))
    command = [
        sys.executable,
        "-m",
        "shardc",
        "mpiexec",
        "-n",
        str(ranks),
        sys.executable,
        worker,
        "ranks",
        name,
        str(rounds),
    ]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=150)
    answer = next(line for line in found.stdout.splitlines() if "{" in line)
    return float(json.loads(answer[answer.index("{") :])["step"])


def rows() -> list[tuple[str, ...]]:
    """(program, devices, ours, XLA, ratio, spread, goal, ours on 4 ranks) as text."""
    out = []
    for name in DEVICE_CASES:
        m = measure(name, rounds=3)
        ranks = f"{on_ranks(name, rounds=3) * 1e3:.3g} ms" if m["devices"] == 4 else ""
        out.append(
            (m["case"], str(m["devices"]), f"{m['step'] * 1e3:.3g} ms", f"{m['xla'] * 1e3:.3g} ms", f"{m['ratio']:.2f}",
             f"{m['spread'][0]:.2f} to {m['spread'][1]:.2f}", "2", ranks)
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(DEVICE_CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", action="store_true", help="also on 4 ranks")
    options = parser.parse_args()
    byte_compile()
    for name in options.cases:
        m = measure(name, options.rounds)
        print(
            f"{name:22s} step {m['step'] * 1e3:8.2f} ms  XLA {m['xla'] * 1e3:8.2f} ms  ratio {m['ratio']:5.2f} "
            f"({m['spread'][0]:.2f}-{m['spread'][1]:.2f})  processor {m['processor']:5.2f}  "
            f"compile {m['compile'][0]:.2f}/{m['compile'][1]:.2f} s"
            + (f"  4 ranks {on_ranks(name) * 1e3:.2f} ms" if options.ranks else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
