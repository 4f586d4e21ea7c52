"""The pure stencils with Devito, under its own MPI mode: rows split over the ranks, code by the C compiler at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from devito import Eq, Function, Grid, Operator, TimeFunction, configuration
from job import Made, run
from mpi4py import MPI

configuration["log-level"] = "ERROR"


def _grid(comm: Any, start: Any) -> Any:
    shape = (len(start) * comm.size, *start.shape[1:])
    topology = (comm.size, *[1] * (start.ndim - 1)) if comm.size > 1 else None
    extent = tuple(n - 1 for n in shape)
    return Grid(shape=shape, extent=extent, dtype=np.float32, topology=topology)


def _field(grid: Any, start: Any) -> Any:
    u = TimeFunction(name="u", grid=grid, time_order=1, space_order=2)
    for buffer in (0, 1):
        u.data._local[buffer] = start
    return u


def _made(u: Any, new: Any, *others: Any) -> Made:
    grid = u.grid
    operator = Operator([Eq(u.forward, new, subdomain=grid.interior)], subs=grid.spacing_map)
    done = 0

    def advance(steps: int) -> None:
        nonlocal done
        operator.apply(time_m=done, time_M=done + steps - 1)
        done += steps

    return advance, lambda: (np.array(u.data._local[done % 2]), *others)


def heat(comm: Any, start: Any) -> Made:
    u = _field(_grid(comm, start), start)
    return _made(u, u + 0.1 * u.laplace)


def jacobi(comm: Any, start: Any, right: Any) -> Made:
    grid = _grid(comm, start)
    u, b = _field(grid, start), Function(name="b", grid=grid, space_order=0)
    b.data._local[:] = right
    return _made(u, u + (u.laplace - b) / 6, right)


if __name__ == "__main__":
    if not MPI.Is_initialized():  # Devito keeps mpi4py from it, and from the end
        MPI.Init()
    run({"heat": heat, "Jacobi, 3-D": jacobi}, MPI.COMM_WORLD)
    if not MPI.Is_finalized():
        MPI.Finalize()
