"""Heat on a plate with a hot edge: explicit steps that update the interior in place.

Run `python examples/heat.py [SIZE] [STEPS]`, or the same behind `shardc mpiexec -n 4`: rows are split over the ranks.
`examples/by_hand/heat.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np

SIZE, STEPS = (int(a) for a in sys.argv[1:3] or (512, 50))
CALLS = 4


@np.jit
def advance(u):
    for _ in range(STEPS):
        u[1:-1, 1:-1] += 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


u = np.zeros((SIZE, SIZE))
u[0] = 1.0
u[:, 0] = np.linspace(1, 0, SIZE)
state = (u,)
u = advance(u)  # compiles
start = time.perf_counter()
for _ in range(CALLS - 1):
    u = advance(u)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
mean, norm = u.mean(), np.sqrt(np.vdot(u, u))
if shardc.process_index() == 0:
    print(f"heat: mean {mean:.12g}, norm {norm:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
