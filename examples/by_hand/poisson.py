"""examples/poisson.py with mpi4py: planes split over the ranks, ghost planes sent by hand."""

import sys
import time

import numpy as np
from mpi4py import MPI

SIZE, DIGITS = (int(a) for a in sys.argv[1:3] or (32, 4))
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
above = rank - 1 if rank > 0 else MPI.PROC_NULL
below = rank + 1 if rank < ranks - 1 else MPI.PROC_NULL
first, last = SIZE * rank // ranks, SIZE * (rank + 1) // ranks
top, bottom = (2 if rank == 0 else 1), last - first + (0 if rank == ranks - 1 else 1)  # the box's own faces stay


def sweep(u, f):
    comm.Sendrecv(u[1], dest=above, recvbuf=u[-1], source=below)
    comm.Sendrecv(u[-2], dest=below, recvbuf=u[0], source=above)
    new = u.copy()
    new[top:bottom, 1:-1, 1:-1] = (
        u[top + 1 : bottom + 1, 1:-1, 1:-1] + u[top - 1 : bottom - 1, 1:-1, 1:-1]
        + u[top:bottom, 2:, 1:-1] + u[top:bottom, :-2, 1:-1]
        + u[top:bottom, 1:-1, 2:] + u[top:bottom, 1:-1, :-2]
        + f[top:bottom, 1:-1, 1:-1]
    ) / 6  # fmt: skip
    return new


def solve(u, f):
    change, count = np.inf, 0
    while change > 10.0**-DIGITS:
        new = sweep(u, f)
        change = comm.allreduce(np.abs(new - u)[1:-1].max(), MPI.MAX)
        u, count = new, count + 1
    return u, change, count


x, y, z = np.indices((last - first + 2, SIZE, SIZE))
x += first - 1
f = np.where((np.abs(x - SIZE // 4) < 3) & (np.abs(y - SIZE // 2) < 5) & (np.abs(z - SIZE // 3) < 4), 1.0, 0.0)
solve(np.zeros_like(f), f)
start = time.perf_counter()
u, change, count = solve(np.zeros_like(f), f)
took = (time.perf_counter() - start) / count
mean = comm.allreduce(u[1:-1].sum()) / SIZE**3
highest = comm.allreduce(u[1:-1].max(), MPI.MAX)
if rank == 0:
    print(f"poisson: {count} sweeps, mean {mean:.12g}, highest {highest:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
