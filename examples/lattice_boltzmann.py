"""Flow around a cylinder by the lattice Boltzmann method (D2Q9): populations stream by np.roll, then collide.

Run `python examples/lattice_boltzmann.py [SIZE] [STEPS]`, or the same behind `shardc mpiexec -n 4`.
`examples/by_hand/lattice_boltzmann.py` is the same with mpi4py.
"""

import sys
import time

import numpy

import shardc
import shardc.numpy as np
from shardc import P

SIZE, STEPS = (int(a) for a in sys.argv[1:3] or (128, 20))
CALLS, TAU = 4, 0.6
CX, CY = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
Y, X = numpy.indices((SIZE, 2 * SIZE))
CYLINDER = (X - SIZE / 2) ** 2 + (Y - SIZE / 2) ** 2 < (SIZE / 8) ** 2  # known before tracing: a constant


@np.jit
def advance(f):
    for _ in range(STEPS):
        for i in range(9):
            f[i] = np.roll(f[i], (CY[i], CX[i]), axis=(0, 1))
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


f = np.ones((9, SIZE, 2 * SIZE), sharding=P(None, "devices")) * np.array(WEIGHTS)[:, None, None]
f[1] *= 1.0 + 0.3 * np.cos(2 * np.pi * X / SIZE)
state = (f,)
f = advance(f)  # compiles
start = time.perf_counter()
for _ in range(CALLS - 1):
    f = advance(f)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
mass, drift = f.sum(), (f[1] - f[3]).mean()
if shardc.process_index() == 0:
    print(f"lattice Boltzmann: mass {mass:.12g}, drift {drift:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
