"""Random programs of views and changes in place: outside of traced functions, and traced, the same as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as snp
from shardc import Mesh, P

MESH = Mesh({"d": 3})
STEPS = 12


def _slice(rng: Any, n: int) -> Any:
    start, stop = sorted(rng.integers(-n, n + 1, 2).tolist())
    return slice(start, stop, int(rng.choice([1, 1, 2, 3]))) if rng.random() < 0.7 else slice(None, None, -1)


def _view(rng: Any, x: Any) -> Callable[[Any], Any]:
    """What makes a view of an array like ``x``, or a copy where NumPy copies."""
    keys = tuple(_slice(rng, n) if rng.random() < 0.8 else int(rng.integers(n)) for n in x.shape if n)
    kinds: list[Callable[[Any], Any]] = [lambda a: a[keys] if keys else a[...], lambda a: a.T, lambda a: a.ravel()]
    kinds += [lambda a: a.reshape(-1), lambda a: a[::-1] if a.ndim else a[...], lambda a: a[None]]
    kinds += [lambda a: a[..., ::-1] if a.ndim else a[...], lambda a: a.copy(), lambda a: a[:1] if a.ndim else a[...]]
    windows = numpy.lib.stride_tricks.sliding_window_view
    kinds += [
        lambda a: a.diagonal() if a.ndim > 1 else a[...],
        lambda a: windows(a, 2, axis=0) if len(a) > 1 else a[...],
    ]
    return kinds[int(rng.integers(len(kinds)))]


def _change(rng: Any, x: Any, others: list[Any]) -> Callable[[Any, list[Any]], Any]:
    """What changes an array like ``x`` in place, by one of the ``others`` where it fits."""
    number = float(rng.integers(-9, 9))
    fits = [k for k, o in enumerate(others) if o.shape == x.shape]
    k = int(rng.choice(fits))
    flip = bool(rng.random() < 0.5) and x.ndim > 0

    def other(arrays: list[Any]) -> Any:
        return arrays[k][::-1] if flip else arrays[k]

    def assign(a: Any, b: list[Any]) -> None:
        a[...] = other(b)

    def add(a: Any, b: list[Any]) -> None:
        a += other(b)

    def scale(a: Any, b: list[Any]) -> None:
        a *= 0.5
        a += number

    def fill(a: Any, b: list[Any]) -> None:
        a[a > number] = number

    def masked(a: Any, b: list[Any]) -> None:
        mask = other(b) > number
        a[mask] = a[mask] * 0.5 + 1

    def into(a: Any, b: list[Any]) -> None:
        numpy.subtract(other(b), number, out=a)

    def copied(a: Any, b: list[Any]) -> None:
        numpy.copyto(a, other(b))

    kinds = (assign, add, scale, fill, masked, into, copied)
    return kinds[int(rng.integers(len(kinds)))]


def _program(seed: int, start: Any) -> list[Callable[[list[Any]], Any]]:
    """Steps on a list of arrays, found by doing them in NumPy."""
    rng = numpy.random.default_rng(seed)
    arrays, steps = [start.copy()], []
    while len(steps) < STEPS:
        n = int(rng.integers(len(arrays)))
        if rng.random() < 0.5:
            view = _view(rng, arrays[n])
            steps.append(lambda a, n=n, view=view: a.append(view(a[n])))
        elif arrays[n].ndim and arrays[n].size and arrays[n].flags.writeable:
            change = _change(rng, arrays[n], arrays)
            steps.append(lambda a, n=n, change=change: change(a[n], a))
        else:
            continue
        steps[-1](arrays)
        if arrays[-1].ndim == 0:  # A scalar is no array in NumPy.
            arrays.pop()
            steps.pop()
    return steps


def _run(steps: list[Callable[[list[Any]], Any]], x: Any) -> list[Any]:
    arrays = [x]
    for step in steps:
        step(arrays)
    return arrays


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    start = numpy.random.default_rng(seed).integers(-9, 9, (7, 7)).astype(float)
    steps = _program(seed, start)
    expected = _run(steps, start.copy())
    outside = _run(steps, shardc.array(start.copy(), (MESH, P("d"))))
    traced = snp.jit(lambda x: [a * 1 for a in _run(steps, x)])(shardc.array(start.copy(), (MESH, P("d"))))
    for found, how in ((outside, "outside"), (traced, "traced")):
        for n, (f, e) in enumerate(zip(found, expected, strict=True)):
            numpy.testing.assert_allclose(numpy.asarray(f), e, rtol=1e-12, err_msg=f"seed {seed}, {how}, array {n}")
