"""Loops over stencils on a machine: one exchange for several iterations, NumPy's values, never slower as simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P


def heat(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)

    return shardc.fori_loop(0, 12, step, u)


def heat_with_fixed_borders(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] += 0.1 * (inner - 4 * u[1:-1, 1:-1])
        return u

    return shardc.fori_loop(0, 12, step, u)


def heat_with_padding_and_a_field(u: Any, k: Any) -> Any:
    """The iteration's number and an array that never changes are read as well."""

    def step(i: Any, u: Any) -> Any:
        p = np.pad(u, 2)
        around = p[4:, 2:-2] + p[:-4, 2:-2] + p[2:-2, 4:] + p[2:-2, :-4]
        return u + k * (around - 4 * u) / (i + 1.0)

    return shardc.fori_loop(0, 6, step, u)


def nine_points(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        shifts = [o for o in np.ndindex(3, 3) if o != (1, 1)]
        return sum((0.1 * np.roll(u, (a - 1, b - 1), (0, 1)) for a, b in shifts), 0.1 * u)

    return shardc.fori_loop(0, 4, step, u)


def shallow_water(h: Any, u: Any, v: Any) -> Any:
    def step(_: Any, c: Any) -> Any:
        h, u, v = c
        u = u - 0.1 * (h - np.roll(h, 1, 0))
        v = v - 0.1 * (h - np.roll(h, 1, 1))
        h = h - 0.1 * (np.roll(u, -1, 0) - u + np.roll(v, -1, 1) - v)
        return h, u, v

    return shardc.fori_loop(0, 6, step, (h, u, v))


STENCILS = {
    "heat": (heat, 1),
    "fixed borders": (heat_with_fixed_borders, 1),
    "padding, and a field": (heat_with_padding_and_a_field, 2),
    "9 points": (nine_points, 1),
    "shallow water": (shallow_water, 3),
}


def traced(function: Callable[..., Any], count: int, size: int, mesh: Mesh) -> Any:
    names = ("h", "u", "v") if count == 3 else ("u", "k")[:count]
    program = shardc.trace(function, *[shardc.ShapeDtype((size, size), np.float64)] * count, mesh=mesh)
    return program.annotate(dict.fromkeys(names, P(*dict(mesh.axes))))


@pytest.mark.parametrize("mesh", [Mesh({"x": 4}), Mesh({"x": 2, "y": 2}), Mesh({"x": 2, "y": 3})], ids=str)
@pytest.mark.parametrize("name", STENCILS)
def test_several_iterations_for_one_exchange_have_numpys_values(name: str, mesh: Mesh) -> None:
    function, count = STENCILS[name]
    random = np.random.default_rng(11)
    arrays = [random.standard_normal((24, 24)) for _ in range(count)]
    program = traced(function, count, 24, mesh)
    every, wide = (program.partition(machine=m).report()["collectives"] for m in (None, "h100-dgx"))
    assert 2 * sum(c["count"] for c in wide) <= sum(c["count"] for c in every)
    results = program.partition(machine="h100-dgx").compile("cpu")(*arrays)
    expected = function(*[x.copy() for x in arrays])
    for got, want in zip(*(x if count == 3 else (x,) for x in (results, expected)), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-12)


def test_as_many_bytes_in_a_tenth_of_the_messages() -> None:
    program = traced(
        lambda u: shardc.fori_loop(0, 20, lambda _, u: np.roll(u, 1, 0) + np.roll(u, -1, 0), u), 1, 512, Mesh({"x": 4})
    )
    every, wide = (program.partition(machine=m).report() for m in (None, "h100-dgx"))
    assert wide["wire_bytes"] == every["wire_bytes"]
    assert 10 * sum(c["count"] for c in wide["collectives"]) <= sum(c["count"] for c in every["collectives"])


@pytest.mark.parametrize(("machine", "size"), [("host", 512), ("h100-dgx", 32768)])
def test_where_messages_cost_little_every_iteration_exchanges(machine: str, size: int) -> None:
    """In the memory of one computer; between GPUs beside iterations that take long."""
    program = traced(heat, 1, size, Mesh({"x": 4}))
    every, told = (program.partition(machine=m).report() for m in (None, machine))
    assert [c["count"] for c in told["collectives"]] == [c["count"] for c in every["collectives"]]


@pytest.mark.parametrize(("size", "ratio"), [(1024, 0.4), (8192, 0.85)])
def test_several_iterations_are_taken_where_they_are_faster(size: int, ratio: float) -> None:
    """As simulated: where messages wait, and where iterations take longer than messages."""
    program = traced(heat, 1, size, Mesh({"x": 8}))
    every, wide = (program.partition(machine=m).simulate("h100-dgx").step_seconds for m in (None, "h100-dgx"))
    assert wide <= ratio * every
