"""Poisson's equation in a box, -Laplace(u) = f, by Jacobi's method to a tolerance: the loop is part of the program.

Run `python examples/poisson.py [SIZE] [DIGITS]`, or the same behind `shardc mpiexec -n 4`.
`examples/by_hand/poisson.py` is the same with mpi4py.
"""

import sys
import time

import shardc
import shardc.numpy as np

SIZE, DIGITS = (int(a) for a in sys.argv[1:3] or (32, 4))


def sweep(u, f):
    new = u.copy()
    new[1:-1, 1:-1, 1:-1] = (
        u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1]
        + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
        + f[1:-1, 1:-1, 1:-1]
    ) / 6  # fmt: skip
    return new


@np.jit
def solve(u, f):
    def improve(state):
        u, _, count = state
        new = sweep(u, f)
        return new, np.abs(new - u).max(), count + 1

    return shardc.while_loop(lambda state: state[1] > 10.0**-DIGITS, improve, (u, np.inf, 0))


x, y, z = np.indices((SIZE, SIZE, SIZE))
f = np.where((np.abs(x - SIZE // 4) < 3) & (np.abs(y - SIZE // 2) < 5) & (np.abs(z - SIZE // 3) < 4), 1.0, 0.0)
state = np.zeros_like(f), f
solve(*state)  # compiles
start = time.perf_counter()
u, change, count = solve(*state)
took = (time.perf_counter() - start) / int(count)
mean, highest = u.mean(), u.max()
if shardc.process_index() == 0:
    print(f"poisson: {int(count)} sweeps, mean {mean:.12g}, highest {highest:.12g}")
    print(f"{took * 1e3:.3f} ms a step")
