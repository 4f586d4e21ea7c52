"""Sorts beside NumPy's on one device, and beside a sample sort by hand (mpi4py and NumPy) on ranks.

    python benchmarks/sorting.py [--python OTHER] [--ranks 2] [--elements 1048576]

``--python`` is a Python that has mpi4py. Seconds are those of one rank's processor, as medians; both sides in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TYPES = ("float32", "float64", "int32", "int64")

OURS = """
import sys, time
import numpy as np, shardc
from shardc import Mesh, P
ranks, n, dtype, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
x = (np.random.default_rng(0).standard_normal(n) * 1e8).astype(dtype)
sort = getattr(np, name)
made = shardc.trace(lambda x: shardc.shard(sort(x), P("d")), x, mesh=Mesh({"d": ranks})).annotate({"x": P("d")})
run = made.partition().compile("cpu")
run(x)
took = []
for _ in range(9):
    begin = time.process_time(); run(x); took.append(time.process_time() - begin)
print("seconds", sorted(took)[4])
"""

NUMPY = """
import sys, time
import numpy as np
n, dtype, name = int(sys.argv[2]), sys.argv[3], sys.argv[4]
x = (np.random.default_rng(0).standard_normal(n) * 1e8).astype(dtype)
took = []
for _ in range(9):
    begin = time.process_time(); getattr(np, name)(x); took.append(time.process_time() - begin)
print("seconds", sorted(took)[4])
"""

BY_HAND = """
import sys, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
k, me, n, dtype = comm.size, comm.rank, int(sys.argv[2]), sys.argv[3]
r = n // k
mine = (np.random.default_rng(0).standard_normal(n) * 1e8).astype(dtype)[me * r : (me + 1) * r].copy()
def sample_sort(a):
    a = np.sort(a)
    samples = np.empty((k, 64), a.dtype)
    comm.Allgather(a[:: len(a) // 64][:64].copy(), samples)
    splitters = np.sort(samples.ravel())[64::64][: k - 1]
    cuts = np.concatenate([[0], np.searchsorted(a, splitters), [len(a)]]).astype("i4")
    sent = np.diff(cuts)
    received = np.empty(k, "i4")
    comm.Alltoall(sent, received)
    out = np.empty(received.sum(), a.dtype)
    places = np.concatenate([[0], np.cumsum(received)[:-1]]).astype("i4")
    kind = MPI._typedict[a.dtype.char]
    comm.Alltoallv([a, sent, cuts[:-1], kind], [out, received, places, kind])
    out.sort(kind="stable")
    return out
took = []
for _ in range(9):
    comm.Barrier(); begin = time.process_time(); sample_sort(mine); took.append(time.process_time() - begin)
print("seconds", sorted(took)[4])
"""


def measured(command: list[str], program: str, *arguments: object) -> float:
    """The seconds that a program prints, of its first rank to do so."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
    library = str(Path(sys.prefix) / "lib")
    given = {**kept, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (library, os.environ.get("LD_LIBRARY_PATH", ""))))}
    done = subprocess.run(
        [*command, "-c", program, *map(str, arguments)], env=given, capture_output=True, text=True, check=True
    )
    return float(next(line for line in done.stdout.splitlines() if line.startswith("seconds")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=1 << 20)
    given = parser.parse_args()
    folder = Path(sys.executable).parent
    ranks = [str(folder / "mpiexec"), "-n", str(given.ranks)]
    print("| sort | devices | ours | theirs | ratio |\n| --- | --- | --- | --- | --- |")
    for name in ("sort", "argsort"):
        for dtype in TYPES:
            one = (1, given.elements, dtype, name)
            mine, theirs = (measured([sys.executable], p, *one) for p in (OURS, NUMPY))
            print(f"| {name} {dtype} | 1, NumPy | {mine * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | {mine / theirs:.2f} |")
    for dtype in TYPES if given.python else ():
        several = (given.ranks, given.elements, dtype, "sort")
        mine = measured([str(folder / "shardc"), "mpiexec", "-n", str(given.ranks), sys.executable], OURS, *several)
        theirs = measured([*ranks, given.python], BY_HAND, *several)
        devices = f"{given.ranks}, a sample sort by hand"
        print(f"| sort {dtype} | {devices} | {mine * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | {mine / theirs:.2f} |")


if __name__ == "__main__":
    main()
