"""examples/kmeans.py with mpi4py: each rank has its own points; sums and counts meet by Allreduce."""

import sys
import time

import numpy as np
from mpi4py import MPI

POINTS, STEPS = (int(a) for a in sys.argv[1:3] or (20000, 10))
CALLS, CENTRES, FEATURES = 4, 16, 8
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
first, last = POINTS * rank // ranks, POINTS * (rank + 1) // ranks


def advance(points, centres):
    for _ in range(STEPS):
        distance = (centres**2).sum(axis=1) - 2 * points @ centres.T
        label = distance.argmin(axis=1)
        sums = np.zeros((CENTRES, FEATURES))
        np.add.at(sums, label, points)
        counts = np.bincount(label, minlength=CENTRES)
        comm.Allreduce(MPI.IN_PLACE, sums)
        comm.Allreduce(MPI.IN_PLACE, counts)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return points, centres


i, j = np.indices((last - first, FEATURES))
i += first
points = np.sin(0.7 * (i % CENTRES) * (j + 1)) + 0.3 * np.sin(i * (j + 2.5))
centres = comm.bcast(points[:CENTRES])
state = advance(points, centres)
start = time.perf_counter()
for _ in range(CALLS - 1):
    state = advance(*state)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
points, centres = state
spread = comm.allreduce(((points[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1).sum()) / POINTS
if rank == 0:
    print(f"kmeans: spread {spread:.11g}, size of centres {np.abs(centres).sum():.11g}")
    print(f"{took * 1e3:.3f} ms a step")
