"""What updates of a part and stencils of NumPy programs send, beside a program by hand that exchanges each whole halo
once; and the processor time of an update in place over that of the same step by rolls, both in turn.

Bytes are planned ones of float64, of a device that has neighbours on all sides.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P

ROUNDS, STEPS = 9, 10
HEAD = ("program", "devices", "messages", "sent, bytes", "by hand", "ratio")
TIMES_HEAD = ("1024x1024 float64, a step", "devices", "in place", "by rolls", "ratio")
_WEIGHTS = (1.6, -0.2, 0.025, -0.0018)
_CYLINDER = np.add.outer(np.arange(-256.0, 256) ** 2, np.arange(-256.0, 256) ** 2) < 64**2
_OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def heat_in_place(u: Any) -> Any:
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


def heat_by_rolls(u: Any) -> Any:
    return u + 0.1 * (np.roll(u, -1, 0) + np.roll(u, 1, 0) + np.roll(u, -1, 1) + np.roll(u, 1, 1) - 4 * u)


def doubled_inside(u: Any) -> Any:
    u[1:-1] *= 2
    return u


def rows_moved(u: Any) -> Any:
    u[1:] = u[:-1]
    return u


def differences(u: Any) -> Any:
    out = np.zeros_like(u)
    out[1:-1] = u[2:] - u[:-2]
    return out


def bounced(f: Any) -> Any:
    f[:, _CYLINDER] = f[:, _CYLINDER][_OPPOSITE]
    return f


def radius_4_by_rolls(u: Any) -> Any:
    return sum(
        (w * (np.roll(u, r, d) + np.roll(u, -r, d)) for r, w in enumerate(_WEIGHTS, 1) for d in range(2)), -2.5 * u
    )


def radius_4_by_pad(mode: Any) -> Callable[[Any], Any]:
    def laplacian(u: Any) -> Any:
        (n, m), p = u.shape, np.pad(u, 4, mode=mode)
        out = -2.5 * u
        for r, w in enumerate(_WEIGHTS, 1):
            out = out + w * (p[4 + r : 4 + r + n, 4:-4] + p[4 - r : 4 - r + n, 4:-4])
            out = out + w * (p[4:-4, 4 + r : 4 + r + m] + p[4:-4, 4 - r : 4 - r + m])
        return out

    return laplacian


def box_by_pad(mode: Any, radius: int) -> Callable[[Any], Any]:
    """The corners, edges and the middle of a square around each point."""

    def filtered(u: Any) -> Any:
        (n, m), p = u.shape, np.pad(u, radius, mode=mode)
        places = ((i, j) for i in (0, radius, 2 * radius) for j in (0, radius, 2 * radius))
        return sum((k * p[i : i + n, j : j + m] for k, (i, j) in enumerate(places, 1)), 0.5 * u)

    return filtered


def star_by_pad(mode: Any, radius: int) -> Callable[[Any], Any]:
    def filtered(u: Any) -> Any:
        (n, m), p = u.shape, np.pad(u, radius, mode=mode)
        own = slice(radius, -radius)
        return sum((k * (p[k : k + n, own] + p[own, k : k + m]) for k in range(2 * radius + 1)), 0.5 * u)

    return filtered


def all_around(u: Any) -> Any:
    """All points around, corners included, with different weights."""
    offsets = [tuple(i - 1 for i in o) for o in np.ndindex((3,) * u.ndim)]
    return sum((n * np.roll(u, o, tuple(range(u.ndim))) for n, o in enumerate(offsets, 1)), 0.5 * u)


def padded(mode: Any) -> Callable[[Any], Any]:
    def laplacian(u: Any) -> Any:
        p = np.pad(u, 1, mode=mode)
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u

    return laplacian


def windows(u: Any) -> Any:
    """A median-like filter: what is computed of all windows of 3x3."""
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(u, 1, mode="wrap"), (3, 3))
    return u + seen.max(axis=(2, 3)) - seen.min(axis=(2, 3))


def windows_inside(u: Any) -> Any:
    """The same of the windows that the array has without a pad: two rows and two columns fewer."""
    seen = np.lib.stride_tricks.sliding_window_view(u, (3, 3))
    return seen.max(axis=(2, 3)) - seen.min(axis=(2, 3))


def inside(u: Any) -> Any:
    """All points around, of those that have some on all sides."""
    n, m = u.shape
    return sum((k * u[i : n - 2 + i, j : m - 2 + j] for k, (i, j) in enumerate(np.ndindex(3, 3), 1)))


def steepness(u: Any) -> Any:
    a, b = np.gradient(u)
    return np.hypot(a, b)


def shallow_water(q: Any) -> Any:
    h, u, v = q

    def dx(f: Any) -> Any:
        return 0.5 * (np.roll(f, -1, 0) - np.roll(f, 1, 0))

    def dy(f: Any) -> Any:
        return 0.5 * (np.roll(f, -1, 1) - np.roll(f, 1, 1))

    return np.stack(
        [
            h - 0.01 * (dx(h * u) + dy(h * v)),
            u - 0.01 * (u * dx(u) + v * dy(u) + 9.81 * dx(h)),
            v - 0.01 * (u * dx(v) + v * dy(v) + 9.81 * dy(h)),
        ]
    )


def _halo(shape: tuple[int, ...], split: tuple[int, ...], radius: int) -> int:
    """What a stencil has to send: along each split dimension what a device has, and got along those before."""
    dims, sent = [n // k for n, k in zip(shape, split, strict=True)], 0
    for d, k in enumerate(split):
        if k > 1:
            sent += 2 * radius * 8 * int(np.prod([n for i, n in enumerate(dims) if i != d]))
            dims[d] += 2 * radius
    return sent


_PLANE, _ROW = (1024, 1024), 1024 * 8


_Case = tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...], int]


def _on_plane(function: Callable[[Any], Any], split: tuple[int, ...], radius: int) -> _Case:
    return function, _PLANE, split, _halo(_PLANE, split, radius)


#: The function, the shape of its argument, the parts of each dimension, and the bytes of a program by hand.
CASES: dict[str, _Case] = {
    "heat in place": (heat_in_place, _PLANE, (2, 1), 2 * _ROW),
    "heat in place, 2x2": (heat_in_place, _PLANE, (2, 2), 2 * _ROW),
    "u[1:-1] *= 2": (doubled_inside, _PLANE, (2, 1), 0),
    "u[1:] = u[:-1]": (rows_moved, _PLANE, (2, 1), _ROW),
    "zeros_like, then assigned": (differences, _PLANE, (2, 1), 2 * _ROW),
    "f[:, CYLINDER] = f[:, CYLINDER][OPPOSITE]": (bounced, (9, 512, 512), (1, 2, 1), 0),
    "radius 4 by rolls": (radius_4_by_rolls, _PLANE, (2, 1), _halo(_PLANE, (2, 1), 4)),
    "radius 4 by a wrapped pad": (radius_4_by_pad("wrap"), _PLANE, (2, 1), _halo(_PLANE, (2, 1), 4)),
    "radius 4 by an edge pad": (radius_4_by_pad("edge"), _PLANE, (2, 1), _halo(_PLANE, (2, 1), 4)),
    "radius 4 by a reflected pad": (radius_4_by_pad("reflect"), _PLANE, (2, 1), _halo(_PLANE, (2, 1), 4)),
    "9 points by rolls, 2x2": (all_around, _PLANE, (2, 2), _halo(_PLANE, (2, 2), 1)),
    "27 points by rolls, 2x2x2": (all_around, (64,) * 3, (2, 2, 2), _halo((64,) * 3, (2, 2, 2), 1)),
    "5 points by an edge pad": (padded("edge"), _PLANE, (2, 1), _halo(_PLANE, (2, 1), 1)),
    "5 points by a reflected pad": (padded("reflect"), _PLANE, (2, 1), _halo(_PLANE, (2, 1), 1)),
    **{
        f"{4 * r + 1} points in a star, {mode} pad": _on_plane(star_by_pad(mode, r), (2, 1), r)
        for r, mode in ((8, "edge"), (10, "reflect"), (10, "symmetric"))
    },
    **{
        f"corners at a distance of {r}, {mode} pad, 2x2": _on_plane(box_by_pad(mode, r), (2, 2), r)
        for r, mode in ((1, "edge"), (8, "reflect"), (10, "symmetric"))
    },
    "windows of 3x3 without a pad, 2x2": _on_plane(windows_inside, (2, 2), 1),
    "9 points of the inside, 2x2": _on_plane(inside, (2, 2), 1),
    "9 points of the inside, 3x3": _on_plane(inside, (3, 3), 1),
    "np.gradient": _on_plane(steepness, (2, 1), 1),
    "np.gradient, 2x2": _on_plane(steepness, (2, 2), 1),
    "windows of 3x3, 2x2": (windows, _PLANE, (2, 2), _halo(_PLANE, (2, 2), 1)),
    "shallow water by rolls": (shallow_water, (3, *_PLANE), (1, 2, 1), _halo((3, *_PLANE), (1, 2, 1), 1)),
}


def _spec(split: tuple[int, ...]) -> tuple[Mesh, P]:
    axes = [a if k > 1 else None for a, k in zip("xyz", split, strict=False)]
    return Mesh({a: k for a, k in zip(axes, split, strict=True) if a}), P(*axes)


def rows() -> list[tuple[str, ...]]:
    """(program, devices, messages, bytes, bytes by hand, ratio) as text; values are compared with NumPy's."""
    out: list[tuple[str, ...]] = []
    for name, (function, shape, split, by_hand) in CASES.items():
        x = 1 + 0.1 * np.random.default_rng(0).random(shape)
        mesh, spec = _spec(split)
        made = shardc.trace(function, x, mesh=mesh)
        partitioned = made.annotate({made.module.parameters[0].name: spec}).partition()
        result = np.asarray(partitioned.compile("cpu")(x))
        np.testing.assert_allclose(result, function(x.copy()), rtol=1e-12, atol=1e-12)
        report = partitioned.report()
        sent, messages = report["wire_bytes"], len(report["collectives"])
        ratio = f"{sent / by_hand:.2f}" if by_hand else ("-" if sent else "1.00")
        devices = "x".join(str(k) for k in split if k > 1)
        out.append((f"`{name}`" if "[" in name else name, devices, str(messages), f"{sent:,}", f"{by_hand:,}", ratio))
    return out


def _steps(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def advance(u: Any) -> Any:
        return shardc.fori_loop(0, STEPS, lambda _, u: step(u), u)

    return advance


def times() -> list[tuple[str, ...]]:
    """(heat, devices, in place, by rolls, ratio) as text."""
    out: list[tuple[str, ...]] = []
    x = np.random.default_rng(0).random(_PLANE)
    for split in ((1, 1), (2, 1), (2, 2)):
        mesh, spec = _spec(split)
        forms: list[tuple[Callable[[Any], Any], Any]] = []
        for step in (heat_in_place, heat_by_rolls):
            program = shardc.trace(_steps(step), x, mesh=mesh).annotate({"u": spec}).partition().compile("cpu")
            forms.append((program, program.driver.put(0, x)))
        pairs = [[_processor_seconds(*form) for form in forms] for _ in range(ROUNDS + 1)][1:]
        ours, rolls = (statistics.median(p[k] for p in pairs) for k in (0, 1))
        ratio = statistics.median(a / b for a, b in pairs)
        devices = "x".join(str(k) for k in split if k > 1) or "1"
        out.append(("heat", devices, f"{ours * 1e3:.3f} ms", f"{rolls * 1e3:.3f} ms", f"{ratio:.2f}"))
    return out


def _processor_seconds(program: Callable[[Any], Any], placed: Any) -> float:
    start = time.process_time()
    program(placed)
    return (time.process_time() - start) / STEPS


if __name__ == "__main__":
    for row in (*rows(), *times()):
        print(*row, sep="  ", flush=True)
