"""Transfers under way beside computing: a step with and without them, on two ranks of one core each.

python benchmarks/overlap.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = str(Path(__file__).with_name("overlap_worker.py"))
HEAD = ("all-reduces of 16 MB on 2 ranks of one core each", "one after the other", "beside computing", "ratio", "goal")
#: By the worker's word: what it is, and the goal.
CASES = {
    "skewed": ("ranks compute in turn: waiting can be hidden", "0.58"),
    "even": ("all compute: no spare core", "no more than 1"),
}


def _step(kind: str, overlap: str) -> float:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "SHARDC_OVERLAP": overlap, "SHARDC_OVERLAP_MEMORY": "4"}
    command = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", sys.executable, WORKER, kind, "9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=True)
    return float(json.loads(next(x for x in done.stdout.splitlines() if x.startswith("{")))["step"])


def rows(rounds: int = 3) -> list[tuple[str, ...]]:
    """(case, serial, overlapped, ratio, goal) as text."""
    out = []
    for kind, (title, goal) in CASES.items():
        pairs = [(_step(kind, "never"), _step(kind, "always")) for _ in range(rounds)]
        serial, beside = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        out.append((title, f"{serial * 1e3:.3g} ms", f"{beside * 1e3:.3g} ms", f"{ratio:.2f}", goal))
    return out


def main() -> None:
    from tables import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    print(table(HEAD, rows(parser.parse_args().rounds)))


if __name__ == "__main__":
    main()
