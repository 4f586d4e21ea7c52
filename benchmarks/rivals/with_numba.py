"""The five programs with numba and mpi4py: loops over points, two buffers that take turns, ghost rows by Sendrecv."""

from __future__ import annotations

from typing import Any

import numpy as np
from job import Made, run
from mpi4py import MPI
from numba import njit

kernel = njit(fastmath=True, error_model="numpy")
f4 = np.float32


def ghosts_of(comm: Any, wrap: bool) -> Any:
    """A function that fills the first and the last row of an array from the ranks around."""
    above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if not wrap:
        above = above if comm.rank > 0 else MPI.PROC_NULL
        below = below if comm.rank < comm.size - 1 else MPI.PROC_NULL

    def fill(u: Any) -> None:
        if comm.size > 1:
            comm.Sendrecv(u[1], above, 0, u[-1], below, 0)
            comm.Sendrecv(u[-2], below, 1, u[0], above, 1)
        elif wrap:
            u[0], u[-1] = u[-2], u[1]

    return fill


def rows_inside(comm: Any, rows: int) -> tuple[int, int]:
    """The rows of an array with ghosts that are not on the edge of the whole."""
    return 2 if comm.rank == 0 else 1, rows if comm.rank == comm.size - 1 else rows + 1


@kernel
def heat_step(u, v, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        for j in range(1, u.shape[1] - 1):
            around = u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1]
            v[i, j] = u[i, j] + f4(0.1) * (around - f4(4) * u[i, j])


def heat(comm: Any, start: Any) -> Made:
    u = np.pad(start, ((1, 1), (0, 0)))
    v, fill, inside = u.copy(), ghosts_of(comm, False), rows_inside(comm, len(start))

    def advance(steps: int) -> None:
        nonlocal u, v
        for _ in range(steps):
            fill(u)
            heat_step(u, v, *inside)
            u, v = v, u

    return advance, lambda: (u[1:-1].copy(),)


@kernel
def jacobi_step(u, v, b, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        for j in range(1, u.shape[1] - 1):
            for k in range(1, u.shape[2] - 1):
                around = u[i + 1, j, k] + u[i - 1, j, k] + u[i, j + 1, k] + u[i, j - 1, k]
                v[i, j, k] = (around + u[i, j, k + 1] + u[i, j, k - 1] - b[i, j, k]) * (f4(1) / f4(6))


def jacobi(comm: Any, start: Any, right: Any) -> Made:
    u, b = (np.pad(a, ((1, 1), (0, 0), (0, 0))) for a in (start, right))
    v, fill, inside = u.copy(), ghosts_of(comm, False), rows_inside(comm, len(start))

    def advance(steps: int) -> None:
        nonlocal u, v
        for _ in range(steps):
            fill(u)
            jacobi_step(u, v, b, *inside)
            u, v = v, u

    return advance, lambda: (u[1:-1].copy(), right)


@kernel
def shallow_water_step(h, u, v, hn, un, vn):  # type: ignore[no-untyped-def]
    g, c = f4(9.81), f4(0.005)
    for i in range(1, h.shape[0] - 1):
        for j in range(1, h.shape[1] - 1):
            flux = h[i + 1, j] * u[i + 1, j] - h[i - 1, j] * u[i - 1, j]
            flux += h[i, j + 1] * v[i, j + 1] - h[i, j - 1] * v[i, j - 1]
            hn[i, j] = h[i, j] - c * flux
            moved = u[i, j] * (u[i + 1, j] - u[i - 1, j]) + v[i, j] * (u[i, j + 1] - u[i, j - 1])
            un[i, j] = u[i, j] - c * (moved + g * (h[i + 1, j] - h[i - 1, j]))
            moved = u[i, j] * (v[i + 1, j] - v[i - 1, j]) + v[i, j] * (v[i, j + 1] - v[i, j - 1])
            vn[i, j] = v[i, j] - c * (moved + g * (h[i, j + 1] - h[i, j - 1]))


def shallow_water(comm: Any, *start: Any) -> Made:
    now = [np.pad(a, 1, mode="wrap") for a in start]  # ghost rows and ghost columns
    new, fill = [a.copy() for a in now], ghosts_of(comm, True)

    def advance(steps: int) -> None:
        nonlocal now, new
        for _ in range(steps):
            for a in now:
                fill(a)
                a[:, 0], a[:, -1] = a[:, -2], a[:, 1]
            shallow_water_step(*now, *new)
            now, new = new, now

    return advance, lambda: tuple(a[1:-1, 1:-1].copy() for a in now)


@kernel
def collide(f, o):  # type: ignore[no-untyped-def]
    """Populations are pulled from the neighbours, and collide."""
    a, b, d, w = f4(4 / 9), f4(1 / 9), f4(1 / 36), f4(0.6)
    one, three, half = f4(1), f4(3), f4(0.5)
    for i in range(1, f.shape[1] - 1):
        for j in range(1, f.shape[2] - 1):
            f0, f1, f2, f3, f4_ = f[0, i, j], f[1, i - 1, j], f[2, i, j - 1], f[3, i + 1, j], f[4, i, j + 1]
            f5, f6, f7, f8 = f[5, i - 1, j - 1], f[6, i + 1, j - 1], f[7, i + 1, j + 1], f[8, i - 1, j + 1]
            rho = f0 + f1 + f2 + f3 + f4_ + f5 + f6 + f7 + f8
            inverse = one / rho
            ux = (f1 - f3 + f5 - f6 - f7 + f8) * inverse
            uy = (f2 - f4_ + f5 + f6 - f7 - f8) * inverse
            base = one - f4(1.5) * (ux * ux + uy * uy)
            o[0, i, j] = f0 + w * (a * rho * base - f0)
            c = three * ux
            o[1, i, j] = f1 + w * (b * rho * (base + c + half * c * c) - f1)
            o[3, i, j] = f3 + w * (b * rho * (base - c + half * c * c) - f3)
            c = three * uy
            o[2, i, j] = f2 + w * (b * rho * (base + c + half * c * c) - f2)
            o[4, i, j] = f4_ + w * (b * rho * (base - c + half * c * c) - f4_)
            c = three * (ux + uy)
            o[5, i, j] = f5 + w * (d * rho * (base + c + half * c * c) - f5)
            o[7, i, j] = f7 + w * (d * rho * (base - c + half * c * c) - f7)
            c = three * (uy - ux)
            o[6, i, j] = f6 + w * (d * rho * (base + c + half * c * c) - f6)
            o[8, i, j] = f8 + w * (d * rho * (base - c + half * c * c) - f8)


def lattice_boltzmann(comm: Any, start: Any) -> Made:
    f = np.pad(start, ((0, 0), (1, 1), (1, 1)), mode="wrap")
    o, row = f.copy(), np.empty((9, f.shape[2]), f4)
    above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    def advance(steps: int) -> None:
        nonlocal f, o
        for _ in range(steps):
            if comm.size == 1:
                f[:, 0], f[:, -1] = f[:, -2], f[:, 1]
            else:
                comm.Sendrecv(np.ascontiguousarray(f[:, 1]), above, 0, row, below, 0)
                f[:, -1] = row
                comm.Sendrecv(np.ascontiguousarray(f[:, -2]), below, 1, row, above, 1)
                f[:, 0] = row
            f[:, :, 0], f[:, :, -1] = f[:, :, -2], f[:, :, 1]
            collide(f, o)
            f, o = o, f

    return advance, lambda: (f[:, 1:-1, 1:-1].copy(),)


@kernel
def attract(x, y, z, X, Y, Z, a):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        ax, ay, az = f4(0), f4(0), f4(0)
        for j in range(X.shape[0]):
            dx, dy, dz = X[j] - x[i], Y[j] - y[i], Z[j] - z[i]
            square = dx * dx + dy * dy + dz * dz + f4(0.01)
            weight = f4(1) / (square * np.sqrt(square))
            ax += dx * weight
            ay += dy * weight
            az += dz * weight
        a[0, i], a[1, i], a[2, i] = ax, ay, az


def bodies(comm: Any, x: Any, v: Any) -> Made:
    x, v = np.ascontiguousarray(x.T), np.ascontiguousarray(v.T)  # coordinate by coordinate
    a, gathered = np.empty_like(x), np.empty((comm.size, *x.shape), f4)
    scale = f4(0.001 / (x.shape[1] * comm.size))

    def advance(steps: int) -> None:
        nonlocal x, v
        for _ in range(steps):
            comm.Allgather(x, gathered)
            attract(*x, *np.ascontiguousarray(gathered.transpose(1, 0, 2).reshape(3, -1)), a)
            v += scale * a
            x += f4(0.001) * v

    return advance, lambda: (x.T.copy(), v.T.copy())


if __name__ == "__main__":
    made = {"heat": heat, "shallow water": shallow_water, "lattice Boltzmann": lattice_boltzmann}
    run({**made, "Jacobi, 3-D": jacobi, "bodies": bodies}, MPI.COMM_WORLD)
