"""Shallow water on a doubly periodic sea: a drop falls in, and its waves run around.

Run `python examples/shallow_water.py [SIZE] [STEPS]`, or the same behind `shardc mpiexec -n 4`.
`examples/by_hand/shallow_water.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np

SIZE, STEPS = (int(a) for a in sys.argv[1:3] or (256, 40))
CALLS, RATE, GRAVITY = 4, 0.1, 1.0  # RATE is the time step over the width of a cell


def flux_difference(f, axis):
    return 0.5 * RATE * (np.roll(f, -1, axis) - np.roll(f, 1, axis))


def average(q):
    return 0.25 * (np.roll(q, 1, 0) + np.roll(q, -1, 0) + np.roll(q, 1, 1) + np.roll(q, -1, 1))


@np.jit
def advance(h, hu, hv):
    """Lax and Friedrichs' method: height and the two momenta."""
    for _ in range(STEPS):
        u, v, pressure = hu / h, hv / h, 0.5 * GRAVITY * h * h
        h, hu, hv = (
            average(h) - flux_difference(hu, 0) - flux_difference(hv, 1),
            average(hu) - flux_difference(hu * u + pressure, 0) - flux_difference(hu * v, 1),
            average(hv) - flux_difference(hv * u, 0) - flux_difference(hv * v + pressure, 1),
        )
    return h, hu, hv


x, y = np.indices((SIZE, SIZE))
drop = np.exp(-((x - SIZE / 3) ** 2 + (y - SIZE / 2) ** 2) / (2 * (SIZE / 20) ** 2))
state = 1.0 + 0.5 * drop, np.zeros_like(drop), np.zeros_like(drop)
state = advance(*state)  # compiles
start = time.perf_counter()
for _ in range(CALLS - 1):
    state = advance(*state)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
h, hu, hv = state
water, energy = h.mean(), np.sum((hu * hu + hv * hv) / h + GRAVITY * h * h) / 2
if shardc.process_index() == 0:
    print(f"shallow water: mean height {water:.12g}, energy {energy:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
