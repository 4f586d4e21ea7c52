"""Steps on one device: shardc against XLA:CPU, a process each, in turn. Ratios are XLA's time over ours.

python benchmarks/cpu_steps.py [PROGRAM ...] [--threads N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cpu_programs import PROGRAMS


class Side:
    """A worker process of `cpu_worker.py`."""

    def __init__(self, name: str, threads: int | None = None, flags: str = "") -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        if flags:
            environment["XLA_FLAGS"] = flags
        command = [sys.executable, str(Path(__file__).with_name("cpu_worker.py")), name, str(threads or 0)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(name: str, threads: int | None = None, rounds: int = 9, flags: str = "") -> dict[str, Any]:
    """One program: seconds per step (medians), the ratio's median and spread, compile times, peaks in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        ours, xla = Side("shardc", threads), Side("xla", threads, flags)
        cold, theirs = ours.ask(f"{name} {folder}"), xla.ask(name)
        warm = ours.ask(f"{name} {folder}")
        first = ours.ask("1"), xla.ask("1")
        np.testing.assert_allclose(first[0]["value"], first[1]["value"], rtol=2e-3, atol=1e-2)
        steps = max(1, min(200, int(0.25 / max(first[1]["step"], 1e-4))))
        ours.ask(str(steps)), xla.ask(str(steps))
        pairs = [(ours.ask(str(steps)), xla.ask(str(steps))) for _ in range(rounds)]
        ours.close()
        xla.close()
    ratios = sorted(b["step"] / a["step"] for a, b in pairs)
    return {
        "step": statistics.median(a["step"] for a, _ in pairs),
        "xla": statistics.median(b["step"] for _, b in pairs),
        "processor": statistics.median(a["processor"] for a, _ in pairs),
        "xla processor": statistics.median(b["processor"] for _, b in pairs),
        "ratio": statistics.median(ratios),
        "spread": (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
        "compile": (cold["compile"], warm["compile"], theirs["compile"]),
        "peak": (cold["peak"], theirs["peak"]),
        "resident": (pairs[-1][0]["resident"], pairs[-1][1]["resident"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--xla-flags", default="")
    options = parser.parse_args()
    for name in options.programs:
        m = measure(name, options.threads, options.rounds, options.xla_flags)
        cold, warm, theirs = m["compile"]
        print(
            f"{name:16s} step {m['step'] * 1e3:9.3f} ms  XLA {m['xla'] * 1e3:9.3f} ms  ratio {m['ratio']:6.2f} "
            f"({m['spread'][0]:.2f}-{m['spread'][1]:.2f})  processor {m['xla processor'] / m['processor']:5.2f}  "
            f"compile {cold:.2f}/{warm:.3f}/{theirs:.2f} s  peak {m['peak'][0] / m['peak'][1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
