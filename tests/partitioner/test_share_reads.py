"""Pads that repeat or mirror edges, windows and shifts of any size: NumPy's values, and the bytes of one halo."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.evaluate import evaluate_computation
from shardc.hlo.ir.ir import Computation, topological
from shardc.partitioner.prepare.reads.static_reads import find_static_reads
from tests.partitioner.test_halos import around

MODES = ("edge", "reflect", "symmetric")


def star(u: Any, mode: Any, radius: int) -> Any:
    """Points along each dimension, up to ``radius`` away."""
    p, out = np.pad(u, radius, mode=mode), 0.5 * u
    for d in range(u.ndim):
        for k in range(2 * radius + 1):
            cut = tuple(slice(k, k + n) if d == q else slice(radius, radius + n) for q, n in enumerate(u.shape))
            out = out + (k + 1) * p[cut]
    return out


def box(u: Any, mode: Any, radius: int) -> Any:
    """Corners, edges and middle of a square."""
    p = np.pad(u, radius, mode=mode)
    corners = np.ndindex((3,) * u.ndim)
    cuts = (tuple(slice(i * radius, i * radius + n) for i, n in zip(o, u.shape, strict=True)) for o in corners)
    return sum(((k + 1) * p[c] for k, c in enumerate(cuts)), 0.5 * u)


def inside(u: Any) -> Any:
    """All points around, of those that have some on all sides."""
    cuts = (tuple(slice(i, n - 2 + i) for i, n in zip(o, u.shape, strict=True)) for o in np.ndindex((3,) * u.ndim))
    return sum((k + 1) * u[c] for k, c in enumerate(cuts))


def windows(u: Any) -> Any:
    seen = np.lib.stride_tricks.sliding_window_view(u, (3,) * u.ndim)
    axes = tuple(range(u.ndim, 2 * u.ndim))
    return seen.max(axis=axes) - seen.min(axis=axes)


def slopes(u: Any) -> Any:
    return sum(g * g for g in (np.gradient(u) if u.ndim > 1 else [np.gradient(u)]))


def sent(function: Callable[[Any], Any], x: np.ndarray, split: tuple[int, ...]) -> int:
    """Bytes that a device sends, after values were compared with NumPy's."""
    axes = [a if k > 1 else None for a, k in zip("xyz", split, strict=False)]
    mesh = Mesh({a: k for a, k in zip(axes, split, strict=True) if a})
    program = shardc.trace(function, x, mesh=mesh)
    partitioned = program.annotate({program.module.parameters[0].name: P(*axes)}).partition()
    made, want = np.asarray(partitioned.compile("cpu")(x)), function(x.copy())
    assert (made.dtype, made.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(made, want)
    return int(partitioned.report()["wire_bytes"])


CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...], int]] = {
    **{
        f"{shape.__name__} of radius {radius}, {mode}, {'x'.join(map(str, split))}": (
            partial(shape, mode=mode, radius=radius),
            (48, 40),
            split,
            radius,
        )
        for shape, radius, split in ((star, 8, (2, 1)), (star, 10, (4, 1)), (star, 8, (2, 2)), (box, 10, (2, 2)))
        for mode in MODES
    },
    "27 points, reflect, 2x2x2": (partial(box, mode="reflect", radius=1), (8, 12, 10), (2, 2, 2), 1),
    "a line, edge, 4": (partial(star, mode="edge", radius=9), (64,), (4,), 9),
    "a line, symmetric, uneven, 3": (partial(star, mode="symmetric", radius=9), (61,), (3,), 9),
    "corners, wrap, uneven, 2x2": (partial(box, mode="wrap", radius=4), (61, 55), (2, 2), 4),
    "star, wrap, uneven, 3": (partial(star, mode="wrap", radius=4), (61, 5), (3, 1), 4),
    "windows, 2x2": (windows, (24, 16), (2, 2), 1),
    "inside, 2x2": (inside, (24, 16), (2, 2), 1),
    "inside, 2x2x2": (inside, (12, 8, 16), (2, 2, 2), 1),
    "gradient, 2": (slopes, (24, 16), (2, 1), 1),
    "gradient, 4": (slopes, (64,), (4,), 1),
    "gradient, 2x2": (slopes, (24, 16), (2, 2), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_all_readers_get_one_halo(name: str) -> None:
    function, shape, split, radius = CASES[name]
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float64)
    assert sent(function, x, split) <= 1.05 * around(
        tuple(-(-n // k) * k for n, k in zip(shape, split, strict=True)), split, radius
    )


def test_rows_that_stay_are_not_sent() -> None:
    """A pad that is read as a whole moves what its larger shards take of the neighbours: nothing between two."""
    x = np.arange(64.0).reshape(16, 4)
    assert sent(lambda u: 2 * np.pad(u, ((3, 3), (0, 0)), mode="reflect"), x, (2, 1)) == 0


def test_two_kinds_of_edges_of_one_array_are_two_groups() -> None:
    def function(u: Any) -> Any:
        n, p, q = len(u), np.pad(u, 2, mode="edge"), np.pad(u, 2, mode="symmetric")
        return p[:n] + 2 * p[4:] + 3 * q[:n] + 4 * q[4:]

    assert sent(function, np.arange(24.0), (2,)) <= 8 * 8


def test_padding_that_is_computed_of_a_reader_is_no_constant() -> None:
    def function(u: Any) -> Any:
        n, p = len(u), np.pad(u, 2, mode="edge")
        q = np.pad(u, 2, constant_values=(p[:n] + p[4:]).max())
        return p[:n] + q[:n] + 2 * q[4:]

    sent(function, np.arange(23.0), (2,))


@pytest.mark.parametrize("width", [7, 8, 9, 16, 17, 31, 40])
@pytest.mark.parametrize("mode", MODES)
def test_pads_as_wide_as_shards_and_wider(mode: Any, width: int) -> None:
    """No more than twice all shards everywhere, where the pad is as wide as the array: turned around, it is another."""

    def function(u: Any) -> Any:
        n, p = len(u), np.pad(u, width, mode=mode)
        return p[:n] + 2 * p[width // 2 : width // 2 + n] + 3 * p[2 * width :]

    assert sent(function, np.arange(32.0), (4,)) <= (3 if width < 31 else 6) * 64


def any_reads(r: random.Random) -> tuple[Callable[[Any], Any], np.ndarray, tuple[int, ...]]:
    """A sum of slices of equal sizes of a padded array."""
    rank = r.choice([1, 2, 2, 3])
    shape = tuple(r.choice([2, 3, 5, 7, 8, 9, 12, 13, 16, 24]) for _ in range(rank))
    split = tuple(r.choice([2, 3, 4] if d == 0 else [1, 2, 3]) for d in range(rank))
    mode: Any = r.choice([*MODES, "wrap", "constant"])
    widths = [(r.randint(0, 5), r.randint(0, 5)) if r.random() < 0.8 else (0, 0) for _ in range(rank)]
    padded = [n + low + high for n, (low, high) in zip(shape, widths, strict=True)]
    sizes = [min(n, r.choice([m, m, max(m - 2, 1), m + 1])) for n, m in zip(padded, shape, strict=True)]
    starts = [[r.randint(0, n - m) for n, m in zip(padded, sizes, strict=True)] for _ in range(r.randint(1, 4))]
    dtype = r.choice(["float32", "float64", "int32", "int8", "complex64", "bool"])
    times = 2 if tuple(sizes) == shape and r.random() < 0.5 else 1

    def function(u: Any) -> Any:
        for _ in range(times):
            p = np.pad(u, widths, mode=mode)
            parts = [p[tuple(slice(a, a + n) for a, n in zip(s, sizes, strict=True))] for s in starts]
            u = parts[0]
            for part in parts[1:]:
                u = u ^ part if dtype == "bool" else 3 * u + part
        return u

    return function, np.random.default_rng(0).integers(0, 5, shape).astype(dtype), split


@pytest.mark.parametrize("seed", range(40))
def test_any_reads_of_padded_arrays(seed: int) -> None:
    sent(*any_reads(random.Random(seed)))


@pytest.mark.parametrize("mode", [*MODES, "wrap", "constant"])
def test_places_are_those_of_the_program(mode: Any) -> None:
    """What is said of a value's places is what the program makes of an array of numbers."""

    def function(u: Any) -> Any:
        p = np.pad(u, ((3, 2), (1, 4)), mode=mode)
        return p[2:-1, ::-1][:, 1:-3]

    x = np.arange(1, 31).reshape(6, 5)
    module = shardc.trace(function, x).module
    reads = find_static_reads(module.entry)
    assert reads[module.entry.root.operands[0] if module.entry.root.opcode == "tuple" else module.entry.root]
    for value, read in reads.items():
        places = [[-1 if r.padding else r.start + k * r.step for r in p for k in range(r.length)] for p in read.places]
        padded = np.pad(x, ((0, 1), (0, 1)))
        made = evaluate_computation(Computation("part", topological([*module.parameters, value]), value), [x])
        assert read.root is module.parameters[0]
        np.testing.assert_array_equal(np.asarray(made), padded[np.ix_(*places)])


def test_what_readers_of_an_argument_exchange_has_their_line() -> None:
    def slope(u: Any) -> Any:
        return u[1:] - u[:-1]

    traced = shardc.trace(slope, np.zeros(1000), mesh=Mesh({"d": 4}), in_shardings=(P("d"),))
    sources = [c["source"] for c in traced.partition().report()["collectives"]]
    assert sources and all(s.startswith(f"{__file__}:") for s in sources)
