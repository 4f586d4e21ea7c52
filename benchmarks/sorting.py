"""Sorts beside NumPy's on one device, and beside a sample sort by hand (mpi4py and NumPy) on ranks.

    python benchmarks/sorting.py [--ranks 2] [--elements 1048576]

Seconds are those of one rank's processor, as medians; both sides in turn, each in a process or job of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

TYPES = ("float32", "float64", "int32", "int64")
HEAD = ("1 Mi elements", "devices", "ours", "theirs", "ours / theirs")
#: What else puts elements in order or picks by it, as functions of ``x``: on one device, beside NumPy.
SELECTIONS = {
    "median": "np.median(x)",
    "nine quantiles": "np.quantile(x, [k / 10 for k in range(1, 10)])",
    "partition, the 100 largest": "np.partition(x, len(x) - 100)[-100:]",
    "rows of 1,024": "np.sort(x.reshape(-1, 1024), axis=1)",
    "columns of 1,024": "np.sort(x.reshape(1024, -1), axis=0)",
    "searchsorted in itself": "np.searchsorted(np.sort(x), x)",
}

OURS = """
import sys, time
import numpy as np, shardc
from shardc import Mesh, P
ranks, n, dtype = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
function = eval("lambda x: " + sys.argv[4])
if ranks > 1:
    function = lambda x, whole=function: shardc.shard(whole(x), P("d"))
x = (np.random.default_rng(0).standard_normal(n) * 1e8).astype(dtype)
made = shardc.trace(function, x, mesh=Mesh({"d": ranks})).annotate({"x": P("d")})
run = made.partition().compile("cpu")
placed = run.driver.put(0, x)
run(placed)
took = []
for _ in range(9):
    begin = time.process_time(); run(placed); took.append(time.process_time() - begin)
print("seconds", sorted(took)[4])
"""

NUMPY = """
import sys, time
import numpy as np
n, dtype, function = int(sys.argv[2]), sys.argv[3], eval("lambda x: " + sys.argv[4])
x = (np.random.default_rng(0).standard_normal(n) * 1e8).astype(dtype)
took = []
for _ in range(9):
    begin = time.process_time(); function(x); took.append(time.process_time() - begin)
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
    done = subprocess.run(
        [*command, "-c", program, *map(str, arguments)], env=kept, capture_output=True, text=True, check=True
    )
    return float(next(line for line in done.stdout.splitlines() if line.startswith("seconds")).split()[1])


def rows(ranks: int = 2, elements: int = 1 << 20) -> Iterator[tuple[str, ...]]:
    """(what, devices, ours, theirs, ratio) as text."""
    one = [(f"{name} {dtype}", dtype, f"np.{name}(x)") for name in ("sort", "argsort") for dtype in TYPES]
    one += [(f"{name}, float64", "float64", text) for name, text in SELECTIONS.items()]
    for name, dtype, text in one:
        mine, theirs = (measured([sys.executable], p, 1, elements, dtype, text) for p in (OURS, NUMPY))
        yield _row(name, "1, NumPy", mine, theirs)
    job = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks), sys.executable]
    for dtype in TYPES:
        mine, theirs = (measured(job, p, ranks, elements, dtype, "np.sort(x)") for p in (OURS, BY_HAND))
        yield _row(f"sort {dtype}", f"{ranks}, a sample sort by hand", mine, theirs)


def _row(what: str, devices: str, mine: float, theirs: float) -> tuple[str, ...]:
    return what, devices, f"{mine * 1e3:.1f} ms", f"{theirs * 1e3:.1f} ms", f"{mine / theirs:.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=1 << 20)
    given = parser.parse_args()
    for row in rows(given.ranks, given.elements):
        print(*row, sep="  ", flush=True)
