"""Types, casts and special values of NumPy functions on split arrays, beside NumPy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc import Mesh

MESH = Mesh({"a": 2})


def told(f: Callable[..., Any], *args: Any) -> Any:
    """What a call returns, or the type of its error."""
    try:
        return f(*args)
    except Exception as e:
        return type(e)


def check(f: Callable[..., Any], *args: Any) -> None:
    wanted = told(f, *args)
    got = told(f, *(shardc.array(a, mesh=MESH) if isinstance(a, np.ndarray) else a for a in args))
    if isinstance(wanted, type) or isinstance(got, type):
        assert got is wanted
        return
    found, true = np.asarray(got), np.asarray(wanted)
    assert found.dtype == true.dtype
    np.testing.assert_allclose(found.astype(complex), true.astype(complex), rtol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "uint64", "float32"])
@pytest.mark.parametrize("other", ["bool", "uint8", "int64", "float16"])
def test_nearness_of_integers_does_not_wrap(kind: str, other: str) -> None:
    r = np.random.default_rng(1)
    a, b = r.integers(0, 255, 40).astype(kind), r.integers(0, 255, 40).astype(other)
    check(np.isclose, a, b)
    check(lambda x, y: np.isclose(x, y, rtol=0.05, atol=2), a, b)
    check(np.allclose, a, a.astype(other))


@pytest.mark.parametrize("kinds", [("bool", "bool"), ("uint16", "bool"), ("complex64", "bool"), ("int8", "complex128")])
def test_bools_are_their_own_conjugates(kinds: tuple[str, str]) -> None:
    r = np.random.default_rng(2)
    a, b = (r.integers(0, 2, 4).astype(k) for k in kinds)
    check(np.correlate, a, b)
    check(lambda x: x.conj(), a)
    check(np.conjugate, a)


@pytest.mark.parametrize("kind", ["int32", "float16", "float32", "float64", "complex64"])
def test_linspace_has_the_type_of_its_ends(kind: str) -> None:
    a, b = np.array([1, 5], kind), np.array([3, 4], kind)
    check(lambda x, y: np.linspace(x, y, 5), a, b)
    check(lambda x: np.linspace(x, 2.0, 4, endpoint=False), a)


def test_norms_of_bfloat16_are_float64() -> None:
    check(np.linalg.norm, np.arange(1, 9).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("seed", range(8))
def test_interpolation_beside_infinity(seed: int) -> None:
    """Some have one point only, complex values, NaNs, and values of their own beyond the ends."""
    r = np.random.default_rng(seed)
    n = 1 + seed % 5
    known, values = np.sort(r.choice(np.arange(10.0), n, replace=False)), r.choice([1.0, 2, np.inf, -np.inf, np.nan], n)
    if seed % 2:
        values = np.array([complex(v, w) for v, w in zip(values, r.choice([1.0, np.inf], n), strict=True)])
    ends = {"left": 9.0} if seed % 3 else {"right": -np.inf}
    at = r.choice([*np.arange(10.0), 0.5, 1.25, np.nan, np.inf], 12)
    check(lambda x, xp, fp: np.interp(x, xp, fp, **ends), at, known, values)


def test_complex_points_are_refused() -> None:
    check(np.interp, np.array([1j]), np.array([0.0, 1.0]), np.array([0.0, 1.0]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_complex_numbers_are_searched_in_the_order_of_sorting(side: str) -> None:
    r, parts = np.random.default_rng(3), [0.0, 1.0, 2.0, np.inf, np.nan]
    table, wanted = (np.array([complex(*r.choice(parts, 2)) for _ in range(n)]) for n in (13, 40))
    check(lambda x, y: np.searchsorted(x, y, side), np.sort(table), wanted)


def _put(x: Any, v: Any) -> Any:
    np.putmask(x, np.arange(4) % 2 == 0, v)
    return x


def _place(x: Any, v: Any) -> Any:
    np.place(x, np.arange(4) % 2 == 0, v if np.ndim(v) else [v])
    return x


def _copy(x: Any, v: Any) -> Any:
    np.copyto(x, v)
    return x


def _set(x: Any, v: Any) -> Any:
    x[1] = v
    return x


@pytest.mark.parametrize("change", [_put, _place, _copy, _set])
@pytest.mark.parametrize("value", [1.5, 300, 1j, True, np.array([1.5] * 4), np.array([1j] * 4), np.array([3] * 4)])
def test_values_that_do_not_fit_are_refused(change: Callable[..., Any], value: Any) -> None:
    value = value[0].item() if change is _set and np.ndim(value) else value
    for kind in ("int8", "float64", "complex64"):
        check(lambda x, v=value: change(x, v), np.ones(4, kind))
