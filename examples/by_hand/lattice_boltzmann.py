"""examples/lattice_boltzmann.py with mpi4py: rows split over the ranks, ghost rows of nine populations sent by hand."""

import sys
import time

import numpy as np
from mpi4py import MPI

SIZE, STEPS = (int(a) for a in sys.argv[1:3] or (128, 20))
CALLS, TAU = 4, 0.6
CX, CY = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
DOWN, UP = [2, 5, 6], [4, 7, 8]  # the populations that go to the next rows, and to the previous
comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
above, below = (rank - 1) % ranks, (rank + 1) % ranks
first, last = SIZE * rank // ranks, SIZE * (rank + 1) // ranks
Y, X = np.indices((last - first, 2 * SIZE))
Y += first
CYLINDER = (X - SIZE / 2) ** 2 + (Y - SIZE / 2) ** 2 < (SIZE / 8) ** 2


def stream(f):
    """Moves each population a cell along its direction; rows that leave go to the neighbour."""
    from_above, from_below = np.empty((3, 2 * SIZE)), np.empty((3, 2 * SIZE))
    comm.Sendrecv(f[DOWN, -1], dest=below, recvbuf=from_above, source=above)
    comm.Sendrecv(f[UP, 0], dest=above, recvbuf=from_below, source=below)
    for i in range(9):
        f[i] = np.roll(f[i], (CY[i], CX[i]), axis=(0, 1))
    for k in range(3):
        f[DOWN[k], 0] = np.roll(from_above[k], CX[DOWN[k]])
        f[UP[k], -1] = np.roll(from_below[k], CX[UP[k]])


def advance(f):
    for _ in range(STEPS):
        stream(f)
        inside = f[:, CYLINDER][OPPOSITE]
        rho = f.sum(axis=0)
        ux = sum(c * f[i] for i, c in enumerate(CX) if c) / rho
        uy = sum(c * f[i] for i, c in enumerate(CY) if c) / rho
        square = 1.5 * (ux * ux + uy * uy)
        for i in range(9):
            cu = 3 * (CX[i] * ux + CY[i] * uy)
            f[i] += (WEIGHTS[i] * rho * (1 + cu + 0.5 * cu * cu - square) - f[i]) / TAU
        f[:, CYLINDER] = inside
    return f


f = np.ones((9, last - first, 2 * SIZE)) * np.array(WEIGHTS)[:, None, None]
f[1] *= 1.0 + 0.3 * np.cos(2 * np.pi * X / SIZE)
f = advance(f)
start = time.perf_counter()
for _ in range(CALLS - 1):
    f = advance(f)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
mass = comm.allreduce(f.sum())
drift = comm.allreduce((f[1] - f[3]).sum()) / (2 * SIZE**2)
if rank == 0:
    print(f"lattice Boltzmann: mass {mass:.12g}, drift {drift:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
