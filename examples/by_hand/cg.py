"""examples/cg.py with mpi4py: rows split over the ranks, ghost rows and dot products by hand."""

import sys
import time

import numpy as np
from mpi4py import MPI

SIZE, DIGITS = (int(a) for a in sys.argv[1:3] or (256, 8))
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
above = rank - 1 if rank > 0 else MPI.PROC_NULL
below = rank + 1 if rank < ranks - 1 else MPI.PROC_NULL
first, last = SIZE * rank // ranks, SIZE * (rank + 1) // ranks
from_above, from_below = np.zeros(SIZE), np.zeros(SIZE)  # stay zero at the grid's own edges


def laplacian(p):
    comm.Sendrecv(p[0], dest=above, recvbuf=from_below, source=below)
    comm.Sendrecv(p[-1], dest=below, recvbuf=from_above, source=above)
    q = 4 * p
    q[1:] -= p[:-1]
    q[:-1] -= p[1:]
    q[0] -= from_above
    q[-1] -= from_below
    q[:, 1:] -= p[:, :-1]
    q[:, :-1] -= p[:, 1:]
    return q


def dot(a, b):
    return comm.allreduce(np.vdot(a, b))


def solve(b):
    x, r, p, rr, count = np.zeros_like(b), b, b, dot(b, b), 0
    limit = 10.0 ** (-2 * DIGITS) * rr
    while rr > limit:
        q = laplacian(p)
        alpha = rr / dot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = dot(r, r)
        p, rr, count = r + new / rr * p, new, count + 1
    return x, count


i, j = np.indices((last - first, SIZE))
i += first
b = np.sin(3 * np.pi * (i + 1) / (SIZE + 1)) * np.cos(i * j / SIZE)
solve(b)
start = time.perf_counter()
x, count = solve(b)
took = (time.perf_counter() - start) / count
error, norm = comm.allreduce(np.abs(laplacian(x) - b).max(), MPI.MAX), np.sqrt(dot(x, x))
if rank == 0:
    print(f"cg: {count} iterations, norm {norm:.9g}, right: {error < 10.0**-DIGITS * SIZE}")
    print(f"{took * 1e3:.3f} ms a step")
