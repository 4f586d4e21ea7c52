"""Conjugate gradients to a tolerance, for the five-point Laplacian of a square grid: one program, loop included.

Run `python examples/cg.py [SIZE] [DIGITS]`, or the same behind `shardc mpiexec -n 4`: rows are split over the ranks.
`examples/by_hand/cg.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np

SIZE, DIGITS = (int(a) for a in sys.argv[1:3] or (256, 8))


def laplacian(p):
    """-Laplace(p), zero outside of the grid."""
    q = 4 * p
    q[1:] -= p[:-1]
    q[:-1] -= p[1:]
    q[:, 1:] -= p[:, :-1]
    q[:, :-1] -= p[:, 1:]
    return q


@np.jit
def solve(b):
    def improve(state):
        x, r, p, rr, count = state
        q = laplacian(p)
        alpha = rr / np.vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        new = np.vdot(r, r)
        return x, r, r + new / rr * p, new, count + 1

    limit = 10.0 ** (-2 * DIGITS) * np.vdot(b, b)
    start = np.zeros_like(b), b, b, np.vdot(b, b), 0
    x, _, _, _, count = shardc.while_loop(lambda state: state[3] > limit, improve, start)
    return x, count


i, j = np.indices((SIZE, SIZE))
b = np.sin(3 * np.pi * (i + 1) / (SIZE + 1)) * np.cos(i * j / SIZE)
state = (b,)
solve(b)  # compiles
start = time.perf_counter()
x, count = solve(b)
took = (time.perf_counter() - start) / int(count)
error, norm = np.abs(laplacian(x) - b).max(), np.sqrt(np.vdot(x, x))
if shardc.process_index() == 0:
    print(f"cg: {int(count)} iterations, norm {norm:.9g}, right: {error < 10.0**-DIGITS * SIZE}")
    print(f"{took * 1e3:.3f} ms a step")
