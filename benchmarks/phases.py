"""Programs of many small collectives: a phase on virtual devices and on ranks beside XLA's forced host devices.

python benchmarks/phases.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = str(Path(__file__).with_name("phase_worker.py"))
#: (devices, on ranks?, phases in a loop of ours, of XLA's, goal).
CASES = (
    (8, False, 2000, 100, "300"),
    (512, False, 200, 4, "2000"),
    (4, True, 2000, 100, "40"),
    (2, True, 2000, 200, "40"),
)


def _phase(command: list[str], side: str, devices: int, phases: int) -> float:
    """Seconds per phase."""
    flags = f"--xla_force_host_platform_device_count={devices}" if side == "xla" else ""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    words = [*command, WORKER, side, str(devices), str(phases), "5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=True)
    line = next(x for x in done.stdout.splitlines() if x.startswith("{"))
    return float(json.loads(line)["phase"])


def rows(rounds: int = 2) -> list[tuple[str, ...]]:
    """(where, ours, XLA, ratio, goal) as text: medians over rounds in which both sides run in turn."""
    out = []
    for devices, on_ranks, phases, theirs, goal in CASES:
        launcher = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(devices)] if on_ranks else []
        pairs = [
            (
                _phase([*launcher, sys.executable], "shardc", devices, phases),
                _phase([sys.executable], "xla", devices, theirs),
            )
            for _ in range(rounds)
        ]
        mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
        where = f"{devices} ranks" if on_ranks else f"{devices} virtual devices"
        ratio = statistics.median(b / a for a, b in pairs)
        out.append((where, f"{mine * 1e6:.3g} us", f"{other * 1e6:.4g} us", f"{ratio:.0f}", goal))
    return out


HEAD = ("one small collective in a program", "shardc", "XLA, as many forced host devices", "ratio", "goal")


def main() -> None:
    from tables import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    print(table(HEAD, rows(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
