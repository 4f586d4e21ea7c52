"""Gathers whose indices are computed: the kernel computes them on the way, however often they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc

Array = np.ndarray[Any, Any]
N = 4096


def _neighbours(x: Array, i: Array) -> Array:
    at = (i * 7) % len(x)
    return x[at] + x[at - 1] * 2


def _guarded(x: Array, i: Array) -> Array:
    """The places decide, too, whether an element counts."""
    at = (i * 3) // 2
    return np.where((at >= 0) & (at < len(x)), x[np.clip(at, 0, len(x) - 1)], -1)


def _searched(x: Array, i: Array) -> Array:
    edges = np.linspace(-2, 2, 512)
    return x[np.searchsorted(edges, x)] + i


def _of_rows(x: Array, i: Array) -> Array:
    rows, at = x.reshape(64, -1), i.reshape(64, -1) * 5 % 64
    return np.take_along_axis(rows, at, 1) + np.take_along_axis(rows, (at + 1) % 64, 1)


def _several_columns(x: Array, i: Array) -> Array:
    rows, at = x.reshape(64, -1), i.reshape(64, -1)
    return rows[at // 3 % 64, at % 7] * rows[at % 7, at // 3 % 64] + at


PROGRAMS: dict[str, Callable[..., Array]] = {
    "neighbours": _neighbours,
    "guarded": _guarded,
    "searched": _searched,
    "of rows": _of_rows,
    "several columns": _several_columns,
}


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_numpy(name: str, target: str) -> None:
    rng = np.random.default_rng(3)
    x, i = rng.normal(size=N).astype("f4"), rng.integers(-N, N, N)
    found = np.asarray(shardc.trace(PROGRAMS[name], x, i).partition().compile(target)(x, i))
    np.testing.assert_array_equal(found, PROGRAMS[name](x, i).astype(found.dtype))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_place_is_stored(name: str) -> None:
    """Beside arguments and results there is less than a bit for each element."""
    x, i = np.zeros(1 << 18, "f4"), np.zeros(1 << 18, "i8")
    memory = shardc.trace(PROGRAMS[name], x, i).partition().memory_analysis()
    assert memory["temporary_bytes"] < x.size // 8


def test_places_out_of_range_of_jax_are_not_stored_either() -> None:
    """`take_along_axis` fills with NaN: its places are compared with bounds, and read by."""
    jax = pytest.importorskip("jax")

    def function(x: Any, i: Any) -> Any:
        return jax.numpy.take_along_axis(x, i % 600, 1)

    rng = np.random.default_rng(4)
    x, i = rng.normal(size=(512, 512)).astype("f4"), rng.integers(0, 1000, (512, 512)).astype("i4")
    program = shardc.from_jax(jax.jit(function), x, i).partition()
    assert program.memory_analysis()["temporary_bytes"] < x.size // 8
    np.testing.assert_array_equal(np.asarray(program.compile()(x, i)), np.asarray(function(x, i)))
