"""k-means by Lloyd's method: points are split over the ranks, centres are whole everywhere.

Run `python examples/kmeans.py [POINTS] [STEPS]`, or the same behind `shardc mpiexec -n 4`.
`examples/by_hand/kmeans.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np
from shardc import P

POINTS, STEPS = (int(a) for a in sys.argv[1:3] or (20000, 10))
CALLS, CENTRES, FEATURES = 4, 16, 8


@np.jit
def advance(points, centres):
    for _ in range(STEPS):
        distance = (centres**2).sum(axis=1) - 2 * points @ centres.T
        label = distance.argmin(axis=1)
        sums = np.zeros((CENTRES, FEATURES))
        np.add.at(sums, label, points)
        counts = np.bincount(label, minlength=CENTRES)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return points, centres


i, j = np.indices((POINTS, FEATURES))
points = np.sin(0.7 * (i % CENTRES) * (j + 1)) + 0.3 * np.sin(i * (j + 2.5))
centres = np.asarray(shardc.gather(points[:CENTRES]), sharding=P())
state = points, centres
state = advance(*state)  # compiles
start = time.perf_counter()
for _ in range(CALLS - 1):
    state = advance(*state)
took = (time.perf_counter() - start) / (STEPS * (CALLS - 1))
points, centres = state
spread = ((points[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1).mean()
size = np.abs(centres).sum()
if shardc.process_index() == 0:
    print(f"kmeans: spread {spread:.11g}, size of centres {size:.11g}")
    print(f"{took * 1e3:.3f} ms a step")
