"""Five programs of scientific computing in plain NumPy: one step of each, and where it starts.

What every rival's program is compared with; shardc runs these functions as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CX, CY = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
WEIGHTS = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)


def heat(u: Any) -> Any:
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return (u,)


def difference(f: Any, axis: int) -> Any:
    return 0.5 * (np.roll(f, -1, axis) - np.roll(f, 1, axis))


def shallow_water(h: Any, u: Any, v: Any) -> Any:
    g, dt = 9.81, 0.01
    return (
        h - dt * (difference(h * u, 0) + difference(h * v, 1)),
        u - dt * (u * difference(u, 0) + v * difference(u, 1) + g * difference(h, 0)),
        v - dt * (u * difference(v, 0) + v * difference(v, 1) + g * difference(h, 1)),
    )


def lattice_boltzmann(f: Any) -> Any:
    f = np.stack([np.roll(f[k], (CX[k], CY[k]), (0, 1)) for k in range(9)])
    rho = f.sum(axis=0)
    ux = sum(CX[k] * f[k] for k in range(9)) / rho
    uy = sum(CY[k] * f[k] for k in range(9)) / rho
    square = 1.5 * (ux * ux + uy * uy)
    new = []
    for k in range(9):
        along = 3 * (CX[k] * ux + CY[k] * uy)
        new.append(f[k] + 0.6 * (WEIGHTS[k] * rho * (1 + along + 0.5 * along * along - square) - f[k]))
    return (np.stack(new),)


def jacobi(u: Any, b: Any) -> Any:
    new = u.copy()
    around = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
    around += u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
    new[1:-1, 1:-1, 1:-1] = (around - b[1:-1, 1:-1, 1:-1]) / 6
    return new, b


def bodies(x: Any, v: Any) -> Any:
    away = x[None, :, :] - x[:, None, :]
    weight = ((away * away).sum(axis=2) + 0.01) ** -1.5
    v = v + 0.001 / len(x) * (away * weight[:, :, None]).sum(axis=1)
    return x + 0.001 * v, v


def _random(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


class Program(NamedTuple):
    step: Callable[..., Any]
    start: Callable[[int], tuple[Any, ...]]
    #: The dimension of each array whose parts the ranks have.
    split: int
    size: int
    steps: int


#: Names of programs; sizes and steps are those of the tables.
PROGRAMS = {
    "heat": Program(heat, lambda n: (_random(n, n),), 0, 1024, 20),
    "shallow water": Program(shallow_water, lambda n: tuple(1 + 0.1 * _random(3, n, n)), 0, 1024, 10),
    "lattice Boltzmann": Program(lattice_boltzmann, lambda n: (1 + 0.1 * _random(9, n, n),), 1, 512, 10),
    "Jacobi, 3-D": Program(jacobi, lambda n: tuple(_random(2, n, n, n)), 0, 128, 10),
    "bodies": Program(bodies, lambda n: tuple(_random(2, n, 3)), 0, 1024, 4),
}
