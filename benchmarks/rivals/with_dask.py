"""The stencils with Dask: blocks of rows on as many threads as there would be ranks; ghosts by map_overlap."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from in_numpy import heat, jacobi, lattice_boltzmann, shallow_water
from job import Made, run

THREADS = int(os.environ.get("DASK_THREADS", "1"))


class Alone:
    """The one process, as a communicator."""

    rank, size = 0, 1

    def gather(self, part: Any) -> list[Any]:
        return [part]

    def Barrier(self) -> None:  # noqa: N802
        pass


def _blocks(step: Callable[..., Any], boundary: str, axis: int, whole: Any, *kept: Any) -> Made:
    chunks = tuple(n // THREADS if d == axis else n for d, n in enumerate(whole.shape))
    u, *others = (da.from_array(a, chunks=chunks).persist() for a in (whole, *kept))

    def advance(steps: int) -> None:
        nonlocal u
        for _ in range(steps):
            u = da.map_overlap(step, u, *others, depth={axis: 1}, boundary={axis: boundary}, dtype=np.float32)
        u = u.persist()

    return advance, lambda: (u.compute(), *kept)


def _heat(_: Any, u: Any) -> Made:
    return _blocks(lambda u: heat(u.copy())[0], "none", 0, u)


def _jacobi(_: Any, u: Any, b: Any) -> Made:
    return _blocks(lambda u, b: jacobi(u, b)[0], "none", 0, u, b)


def _shallow_water(_: Any, *fields: Any) -> Made:
    advance, parts = _blocks(lambda q: np.stack(shallow_water(*q)), "periodic", 1, np.stack(fields))
    return advance, lambda: tuple(parts()[0])


def _lattice_boltzmann(_: Any, f: Any) -> Made:
    return _blocks(lambda f: lattice_boltzmann(f)[0], "periodic", 1, f)


if __name__ == "__main__":
    made = {"heat": _heat, "shallow water": _shallow_water}
    with dask.config.set(scheduler="threads", num_workers=THREADS):
        run({**made, "lattice Boltzmann": _lattice_boltzmann, "Jacobi, 3-D": _jacobi}, Alone())
