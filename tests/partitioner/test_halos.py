"""Stencils in NumPy exchange what neighbours need once: the bytes of the best program, and NumPy's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

Stencil = Callable[[Any], Any]
_WEIGHTS = (1.6, -0.2, 0.025, -0.0018)


def eighth_order_by_rolls(u: Any) -> Any:
    return sum(
        (w * (np.roll(u, r, d) + np.roll(u, -r, d)) for r, w in enumerate(_WEIGHTS, 1) for d in range(2)), -2.5 * u
    )


def box_by_rolls(u: Any) -> Any:
    """All points around, corners included, with different weights."""
    axes = tuple(range(u.ndim))
    offsets = [tuple(int(i) - 1 for i in o) for o in np.ndindex((3,) * u.ndim)]
    return sum((n * np.roll(u, o, axes) for n, o in enumerate(offsets, 1)), 0.5 * u)


def eighth_order_by_pad(u: Any, mode: Any = "wrap") -> Any:
    n, m = u.shape
    p = np.pad(u, 4, mode=mode)
    out = -2.5 * u
    for r, w in enumerate(_WEIGHTS, 1):
        out = out + w * (p[4 + r : 4 + r + n, 4:-4] + p[4 - r : 4 - r + n, 4:-4])
        out = out + w * (p[4:-4, 4 + r : 4 + r + m] + p[4:-4, 4 - r : 4 - r + m])
    return out


def box_by_pad(u: Any) -> Any:
    p = np.pad(u, 1, mode="wrap")
    corners = np.ndindex((3,) * u.ndim)
    cut = (tuple(slice(i, i + n) for i, n in zip(o, u.shape, strict=True)) for o in corners)
    return sum((n * p[c] for n, c in enumerate(cut, 1)), 0.5 * u)


def box_of_windows(u: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(u, 1, mode="wrap"), (3,) * u.ndim)
    return u + seen.max(axis=tuple(range(u.ndim, 2 * u.ndim)))


def around(sizes: tuple[int, ...], split: tuple[int, ...], radius: int) -> int:
    """Bytes of float64 that a device sends: along each split dimension what it has, and got along those before."""
    dims, sent = [n // k for n, k in zip(sizes, split, strict=True)], 0
    for d, k in enumerate(split):
        if k > 1:
            sent += 2 * radius * 8 * int(np.prod([n for i, n in enumerate(dims) if i != d]))
            dims[d] += 2 * radius
    return sent


CASES = {
    "eighth order, 2 rows of devices": (eighth_order_by_rolls, (64, 24), (2, 1), 4),
    "eighth order, 4 rows of devices": (eighth_order_by_rolls, (64, 24), (4, 1), 4),
    "eighth order by pad, 4 rows of devices": (eighth_order_by_pad, (64, 24), (4, 1), 4),
    **{
        f"eighth order by a pad of mode {mode}, 4 rows of devices": (
            lambda u, mode=mode: eighth_order_by_pad(u, mode),
            (64, 24),
            (4, 1),
            4,
        )
        for mode in ("edge", "reflect", "symmetric")
    },
    "9 points by pad, 2x2": (box_by_pad, (24, 16), (2, 2), 1),
    "27 points by pad, 2x2x2": (box_by_pad, (8, 12, 10), (2, 2, 2), 1),
    "9 points of windows, 2x2": (box_of_windows, (24, 16), (2, 2), 1),
    "27 points of windows, 2x2x2": (box_of_windows, (8, 12, 10), (2, 2, 2), 1),
    "9 points, 2x2": (box_by_rolls, (24, 16), (2, 2), 1),
    "9 points, 4x2": (box_by_rolls, (24, 16), (4, 2), 1),
    "27 points, 2x2x2": (box_by_rolls, (8, 12, 10), (2, 2, 2), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stencil_sends_its_halo_once(name: str) -> None:
    stencil, sizes, split, radius = CASES[name]
    axes = "xyz"[: len(sizes)]
    u = np.random.default_rng(7).standard_normal(sizes)
    mesh = Mesh({a: k for a, k in zip(axes, split, strict=True) if k > 1})
    spec = P(*(a if k > 1 else None for a, k in zip(axes, split, strict=True)))
    partitioned = shardc.trace(stencil, u, mesh=mesh).annotate({"u": spec}).partition()
    assert partitioned.report()["wire_bytes"] == around(sizes, split, radius)
    np.testing.assert_allclose(np.asarray(partitioned.compile("cpu")(u)), stencil(u), rtol=1e-12, atol=1e-12)
    permutes = [c["op"] for c in partitioned.report()["collectives"]]
    assert permutes == ["collective-permute"] * sum(1 if k == 2 else 2 for k in split if k > 1)


def differences(u: Any, axis: int) -> Any:
    return 0.5 * (np.roll(u, -1, axis) - np.roll(u, 1, axis))


def average(u: Any) -> Any:
    return 0.25 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1))


def shallow_water_by_fluxes(h: Any, hu: Any, hv: Any) -> Any:
    """Fluxes are computed, and then shifted."""
    u, v, p = hu / h, hv / h, 0.5 * h * h
    return (
        average(h) - differences(hu, 0) - differences(hv, 1),
        average(hu) - differences(hu * u + p, 0) - differences(hu * v, 1),
        average(hv) - differences(hv * u, 0) - differences(hv * v + p, 1),
    )


def shallow_water(h: Any, u: Any, v: Any) -> Any:
    return (
        h - 0.01 * (differences(h * u, 0) + differences(h * v, 1)),
        u - 0.01 * (u * differences(u, 0) + v * differences(u, 1) + differences(h, 0)),
        v - 0.01 * (u * differences(v, 0) + v * differences(v, 1) + differences(h, 1)),
    )


def shallow_water_inside(h: Any, u: Any, v: Any) -> Any:
    """In place and not periodic: the first and the last device get nothing from one side."""
    q = np.log(h) / u + h * v
    new = h.copy()
    new[1:-1] -= 0.1 * (q[2:] - q[:-2]) + (h[2:] * v[2:] + u[:-2])
    return new, u + 0.1 * np.roll(v, 1, 0)


@pytest.mark.parametrize("split", [(2, 1), (4, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("step", [shallow_water_by_fluxes, shallow_water], ids=lambda f: f.__name__)
def test_what_is_computed_of_what_is_sent_anyway_is_not_sent(step: Callable[..., Any], split: tuple[int, int]) -> None:
    """A row of three fields each way, with no corners, in one message each."""
    sizes = (16, 12)
    state = dict(zip(step.__code__.co_varnames, 1 + np.random.default_rng(8).random((3, *sizes)), strict=False))
    mesh = Mesh({a: k for a, k in zip("xy", split, strict=True) if k > 1})
    spec = P(*(a if k > 1 else None for a, k in zip("xy", split, strict=True)))
    partitioned = shardc.trace(step, **state, mesh=mesh).annotate(dict.fromkeys(state, spec)).partition()
    rows = sum(2 * 8 * n // m for k, n, m in zip(split, sizes[::-1], split[::-1], strict=True) if k > 1)
    assert partitioned.report()["wire_bytes"] == 3 * rows
    assert sum(c["count"] for c in partitioned.report()["collectives"]) <= 2
    for got, want in zip(partitioned.compile("cpu")(**state), step(**state), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


def test_devices_at_the_ends_compute_nothing_of_what_nobody_sends() -> None:
    state = dict(zip("huv", 1 + np.random.default_rng(9).random((3, 16, 5)), strict=True))
    traced = shardc.trace(shallow_water_inside, **state, mesh=Mesh({"x": 4}))
    partitioned = traced.annotate(dict.fromkeys(state, P("x"))).partition()
    for got, want in zip(partitioned.compile("cpu")(**state), shallow_water_inside(**state), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)
