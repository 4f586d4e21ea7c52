"""The examples for MPI users beside the mpi4py programs that they replace: lines, bytes that a rank sends, seconds.

Both are started as jobs in turn, and print the median over rounds of the wall time of a step; bytes are those of the
rank that sends the most: planned ones of ours, counted ones of theirs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
HEAD = ("example", "ranks", "lines", "by hand", "sent a step, bytes", "by hand", "a step", "by hand", "ratio")
#: Arguments: sizes and steps, or digits.
EXAMPLES = {
    "heat": (1024, 20),
    "poisson": (64, 1),
    "shallow_water": (512, 10),
    "lattice_boltzmann": (256, 10),
    "cg": (256, 3),
    "nbody": (1024, 2),
    "kmeans": (100000, 5),
}


def measure(name: str, ranks: int, by_hand: bool) -> tuple[float, float]:
    """Seconds and bytes of one step, as one job has them."""
    folder = ROOT / "examples" / ("by_hand" if by_hand else "")
    worker = [str(Path(__file__).with_name("mpi_examples_worker.py")), str(folder / f"{name}.py")]
    start = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks), sys.executable]
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
    command = [*start, *worker, *map(str, EXAMPLES[name])]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["sent"]


def row(name: str, ranks: int) -> tuple[str, ...]:
    pairs = [(measure(name, ranks, False), measure(name, ranks, True)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(p[k][0] for p in pairs) for k in (0, 1))
    (_, sent), (_, sent_by_hand) = pairs[0]
    lines = [len((ROOT / "examples" / f / f"{name}.py").read_text().splitlines()) for f in ("", "by_hand")]
    bytes_sent = (f"{round(sent):,}", f"{round(sent_by_hand):,}")
    times = (f"{ours * 1e3:.2f} ms", f"{theirs * 1e3:.2f} ms", f"{ours / theirs:.2f}")
    return (name.replace("_", " "), str(ranks), *map(str, lines), *bytes_sent, *times)


def rows(ranks: tuple[int, ...] = (1, 2, 4)) -> list[tuple[str, ...]]:
    return [row(name, k) for name in EXAMPLES for k in ranks]


if __name__ == "__main__":
    for line in rows():
        print(*line, sep="  ", flush=True)
