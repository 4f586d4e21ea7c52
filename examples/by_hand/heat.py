"""examples/heat.py with mpi4py: rows split over the ranks, ghost rows sent by hand."""

import sys
import time

import numpy as np
from mpi4py import MPI

SIZE, STEPS = (int(a) for a in sys.argv[1:3] or (512, 50))
CALLS = 4
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
above = rank - 1 if rank > 0 else MPI.PROC_NULL
below = rank + 1 if rank < ranks - 1 else MPI.PROC_NULL
first, last = SIZE * rank // ranks, SIZE * (rank + 1) // ranks
u = np.zeros((last - first + 2, SIZE))  # a ghost row above and below
if rank == 0:
    u[1] = 1.0
u[1:-1, 0] = np.linspace(1, 0, SIZE)[first:last]
top = 2 if rank == 0 else 1  # the first row and the last row of the plate stay
bottom = -2 if rank == ranks - 1 else -1


def advance(u):
    for _ in range(STEPS):
        comm.Sendrecv(u[1], dest=above, recvbuf=u[-1], source=below)
        comm.Sendrecv(u[-2], dest=below, recvbuf=u[0], source=above)
        middle, stop = u[top:bottom, 1:-1], len(u) + bottom
        around = u[top + 1 : stop + 1, 1:-1] + u[top - 1 : stop - 1, 1:-1] + u[top:bottom, 2:] + u[top:bottom, :-2]
        middle += 0.2 * (around - 4 * middle)
    return u


u = advance(u)
start = time.perf_counter()
for _ in range(CALLS - 1):
    u = advance(u)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
mean = comm.allreduce(u[1:-1].sum()) / SIZE**2
norm = np.sqrt(comm.allreduce(np.vdot(u[1:-1], u[1:-1])))
if rank == 0:
    print(f"heat: mean {mean:.12g}, norm {norm:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
