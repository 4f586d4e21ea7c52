"""Updates of parts of split arrays: NumPy's numbers, whatever the mesh, and no more than halos move."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

Array = Any
Step = Callable[[Array], Array]
#: How a matrix lies: mesh, sharding, and how many borders along rows and columns a device has at most.
LAYOUTS = {
    "2x1": (Mesh({"a": 2}), P("a"), (1, 0)),
    "1x2": (Mesh({"a": 2}), P(None, "a"), (0, 1)),
    "2x2": (Mesh({"a": 2, "b": 2}), P("a", "b"), (1, 1)),
    "4x1": (Mesh({"a": 4}), P("a"), (2, 0)),
}
N = 64


def heat(u: Array) -> Array:
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


def double(u: Array) -> Array:
    u[1:-1] *= 2
    return u


def move(u: Array) -> Array:
    u[1:] = u[:-1]
    return u


def laplacian(u: Array) -> Array:
    v = np.zeros_like(u)
    v[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] - 2 * u[1:-1, 1:-1]
    return v


def padded(u: Array) -> Array:
    return np.pad(np.sqrt(abs(u[2:, 1:-1] - u[:-2, 1:-1])), 1, constant_values=7)


def count(u: Array) -> Array:
    u[2:-1, 1:] = np.arange(N - 3, like=u)[:, None] * 2 + np.arange(N - 1, like=u)
    return u


def average_rows(u: Array) -> Array:
    u[1:-1] = (0.5 * (u[2:] + u[:-2])).T[::-1].T
    return u


def closed_walls(u: Array) -> Array:
    """Borders as their neighbours, and one of them from two rows."""
    u[0, :] = 2 * u[1, :] - u[2, :]
    u[-1, :] = u[-2, :]
    u[:, 0] = -u[:, 1]
    u[:, -1] = u[:, -2]
    return u


def ghosts(u: Array) -> Array:
    """Rows beyond the ends of a ring."""
    u[:2] = u[-4:-2]
    u[-2:] = u[2:4]
    return u


Y, X = np.mgrid[:N, :N]
DISC = (X - N // 4) ** 2 + (Y - N // 2) ** 2 < (N // 8) ** 2


def clear_disc(u: Array) -> Array:
    u[DISC] = 0
    return u


def mirror_disc(u: Array) -> Array:
    v = u * 1.5
    v[DISC] = -2 * u[DISC]
    return v


#: Each with the rows and columns that a device sends over each border.
STEPS: dict[str, tuple[Step, tuple[int, int]]] = {
    "heat": (heat, (1, 1)),
    "double": (double, (0, 0)),
    "move": (move, (1, 0)),
    "laplacian": (laplacian, (1, 0)),
    "padded": (padded, (1, 0)),
    "count": (count, (0, 0)),
    "average-rows": (average_rows, (1, 1)),
    "closed-walls": (closed_walls, (0, 0)),
    "ghosts": (ghosts, (2, 0)),
    "clear-disc": (clear_disc, (0, 0)),
    "mirror-disc": (mirror_disc, (0, 0)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STEPS)
def test_only_halos_move(name: str, layout: str) -> None:
    step, halo = STEPS[name]
    mesh, spec, borders = LAYOUTS[layout]
    u = np.random.default_rng(3).normal(size=(N, N))
    if name == "average-rows" and layout in ("1x2", "2x2"):
        pytest.skip("it turns columns around")
    program = shardc.trace(step, u, mesh=mesh).annotate({"u": spec}).partition()
    shards = [N // k for k in (mesh.size if layout == "4x1" else 1 + borders[0], 1 + borders[1])]
    allowed = 8 * (halo[0] * min(borders[0], 1) * 2 * shards[1] + halo[1] * borders[1] * 2 * shards[0])
    report = program.report()
    assert report["wire_bytes"] <= allowed, program.explain()
    assert {c["op"] for c in report["collectives"]} <= {"collective-permute"}
    np.testing.assert_array_equal(np.asarray(program.compile("cpu")(u)), step(u.copy()))


@pytest.mark.parametrize(
    ("function", "dims", "devices", "sent"),
    [
        (STEPS["heat"][0], (61, 40), 2, 2 * 40 * 8),
        (lambda u: u[2:] - u[:-2], (64, 40), 4, 2 * 40 * 8),
        (lambda u: np.diff(u, axis=0), (64, 40), 2, 40 * 8),
        (lambda u: np.cumsum(u, axis=0), (61, 40), 4, 3 * 40 * 8),
    ],
)
def test_results_that_do_not_divide_stay_split(
    function: Callable[[Array], Array], dims: tuple[int, int], devices: int, sent: int
) -> None:
    """Nobody says how they lie: the last device has fewer rows, as an argument's last one may."""
    u = np.random.default_rng(4).normal(size=dims)
    program = shardc.trace(function, u, mesh=Mesh({"x": devices}), in_shardings=P("x")).partition()
    assert program.report()["wire_bytes"] <= sent, program.explain()
    made = program.compile("cpu")(u)
    assert str(made.sharding) == "[{x}, {}]"
    np.testing.assert_allclose(np.asarray(made), function(u.copy()), rtol=1e-12)


def test_results_of_fewer_rows_than_devices_are_whole() -> None:
    u = np.arange(32.0).reshape(8, 4)
    program = shardc.trace(lambda u: u[:3] + 1, u, mesh=Mesh({"x": 4}), in_shardings=P("x")).partition()
    made = program.compile("cpu")(u)
    assert str(made.sharding) == "[{}, {}]"
    np.testing.assert_array_equal(np.asarray(made), u[:3] + 1)


def window(r: random.Random, n: int) -> slice:
    start = r.randint(0, n // 2)
    return slice(start, r.randint(start + 1, n))


@pytest.mark.parametrize("seed", range(24))
def test_any_update(seed: int) -> None:
    """Several updates of random regions from random places, of arrays of odd sizes."""
    r = random.Random(f"updates {seed}")
    dims = (r.randint(5, 23), r.randint(5, 23))
    plans = []
    for _ in range(3):
        into = tuple(window(r, n) for n in dims)
        sizes = tuple(s.stop - s.start for s in into)
        first = [tuple(r.randint(0, n - m) for n, m in zip(dims, sizes, strict=True)) for _ in range(2)]
        taken = [tuple(slice(f, f + m) for f, m in zip(at, sizes, strict=True)) for at in first]
        plans.append((into, taken, r.choice(("=", "+", "max")), r.choice((None, np.s_[0], np.s_[:, -1]))))

    def step(u: Array, v: Array) -> Array:
        for into, (a, b), how, edge in plans:
            new = 2 * u[a] - v[b]
            if how == "max":
                new = np.maximum(new, u[into])
            if how == "+":
                u[into] += new
            else:
                u[into] = new
            if edge is not None:
                u[edge] = v[edge] + 1
        return u

    layout = r.choice(tuple(LAYOUTS))
    mesh, spec, _ = LAYOUTS[layout]
    rng = np.random.default_rng(seed)
    u, v = (rng.integers(-99, 99, dims) for _ in range(2))
    program = shardc.trace(step, u, v, mesh=mesh).annotate({"u": spec, "v": r.choice((spec, P()))})
    made = np.asarray(program.partition().compile("cpu")(u, v))
    np.testing.assert_array_equal(made, step(u.copy(), v), err_msg=f"seed {seed}, {layout}, {plans}")
