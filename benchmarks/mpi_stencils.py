"""Five programs of scientific computing on ranks, beside numba + mpi4py, Devito and Dask.

    SHARDC_BENCH_RIVALS=OTHER/bin/python python benchmarks/mpi_stencils.py

The rivals run in another Python, and those are compared that are installed there; they use the MPI that shardc uses.
Every result is compared with NumPy's. Sides run in turn, each in a job of its own, round by round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rivals.in_numpy import PROGRAMS, Program

FOLDER = Path(__file__).resolve().parent
ROUNDS, CALLS = 3, 15
HEAD = ("program", "ranks", "shardc", "numba + mpi4py", "ratio", "ratio, processor", "Devito", "ratio", "Dask", "ratio")
#: The rivals, and which of the programs each has.
RIVALS = {
    "numba": tuple(PROGRAMS),
    "devito": ("heat", "Jacobi, 3-D"),
    "dask": tuple(name for name in PROGRAMS if name != "bodies"),
}
Times = list[tuple[float, float]]


def rivals_python() -> str:
    """The Python that has the rivals, as ``SHARDC_BENCH_RIVALS`` says, or nothing."""
    return os.environ.get("SHARDC_BENCH_RIVALS", "")


def installed(python: str) -> tuple[str, ...]:
    """Those of the rivals that a Python has."""
    if not python:
        return ()
    find = f"import importlib.util as i; print(*(n for n in {tuple(RIVALS)} if i.find_spec(n)))"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.split()
    return tuple(found)


def job(side: str, name: str, ranks: int, python: str, program: Program) -> Times:
    """Wall and processor seconds of a step, call by call; what came out is compared with NumPy's."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
    arguments = [name, str(program.size), str(program.steps), str(CALLS)]
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)]
    if side == "shardc":
        own = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks)]
        command = [*own, sys.executable, str(FOLDER / "mpi_stencils_worker.py")]
    else:
        command = [*([] if side == "dask" else mpiexec), python, str(FOLDER / "rivals" / f"with_{side}.py")]
        libraries = (str(Path(sys.prefix) / "lib"), os.environ.get("LD_LIBRARY_PATH", ""))
        kept["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        kept["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        kept |= {"DEVITO_MPI": "1" if ranks > 1 else "0", "DASK_THREADS": str(ranks)}
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/found.npz"
        done = subprocess.run([*command, *arguments, file], env=kept, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{side}, {name} on {ranks} ranks: {done.stderr[-2000:]}")
        check(program, f"{side}, {name} on {ranks} ranks", file)
    times: Times = json.loads(done.stdout.splitlines()[-1])
    return times


def check(program: Program, what: str, file: str) -> None:
    """Raises AssertionError where results differ from NumPy's by more than float32 explains."""
    wanted = program.start(program.size)
    for _ in range(program.steps):
        wanted = program.step(*wanted)
    with np.load(file) as found:
        for got, want in zip((found[k] for k in found.files), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()), err_msg=what)


def rows(
    names: Sequence[str] = tuple(PROGRAMS), ranks: Sequence[int] = (1, 2, 4), rounds: int = ROUNDS
) -> Iterator[tuple[str, ...]]:
    """The table's rows as text; a rival that is not installed, or has no such program, says so."""
    python = rivals_python()
    there = installed(python)
    for name in names:
        for k in ranks:
            sides = ["shardc", *(r for r in there if name in RIVALS[r])]
            taken: dict[str, list[Times]] = {side: [] for side in sides}
            for _ in range(rounds):
                for side in sides:
                    taken[side].append(job(side, name, k, python, PROGRAMS[name]))
            yield _row(name, k, taken, there)


def _row(name: str, ranks: int, taken: dict[str, list[Times]], there: Sequence[str]) -> tuple[str, ...]:
    """Medians over the rounds of the quickest call: others that use the machine only add."""
    wall, processor = (
        {side: statistics.median(min(c[k] for c in calls) for calls in found) for side, found in taken.items()}
        for k in (0, 1)
    )
    cells = []
    for rival in RIVALS:
        if rival in wall:
            cells += [f"{wall[rival] * 1e3:.3f} ms", f"{wall['shardc'] / wall[rival]:.2f}"]
            cells += [f"{processor['shardc'] / processor[rival]:.2f}"] if rival == "numba" else []
        else:
            cells += ["-" if rival in there else "not installed", *[""] * (2 if rival == "numba" else 1)]
    return (name, str(ranks), f"{wall['shardc'] * 1e3:.3f} ms", *cells)


if __name__ == "__main__":
    named, counts = sys.argv[1:2] or tuple(PROGRAMS), tuple(map(int, sys.argv[2:])) or (1, 2, 4)
    for row in rows(named, counts, 1):
        print(*row, sep="  ", flush=True)
