"""Complex numbers, NaN, empty arrays, and where a type of result is easily another one than NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc

INF, NAN = np.inf, np.nan
VALUES = np.array([2.5 + 1.7j, -0.5 - 1.2j, 1.5 + 0j, 0j])


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (np.rint, VALUES),
        (np.rint, VALUES.astype(np.complex64)),
        (np.rint, np.array([True, False])),
        (np.median, VALUES),
        (np.median, np.array([1 + 1j, NAN, 2])),
        (np.angle, VALUES),
        (np.angle, np.array([True, False])),
        (np.angle, np.array([1.0, -2.0], np.float32)),
        (np.sign, VALUES),
        (np.sign, np.array([INF + 1j, complex(1, INF), -INF, complex(INF, -INF), complex(NAN, INF)])),
    ],
)
def test_values_and_types_are_those_of_numpy(function: Callable[[Any], Any], x: Any) -> None:
    found = np.asarray(shardc.trace(function, x).compile()(x))
    expected = np.asarray(function(x))
    if function is not np.rint or x.dtype != bool:  # NumPy has float16, and programs keep the type
        assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(40, 40), (64, 4), (4, 64), (3, 5, 4)])
def test_singular_values_of_matrices_with_nan_are_nan(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    x[..., 1, 1] = NAN
    for function in (
        lambda a: np.linalg.svd(a, full_matrices=False),
        lambda a: np.linalg.svd(a, compute_uv=False),
        lambda a: np.linalg.norm(a, 2, axis=(-2, -1)),
        np.linalg.pinv,
    ):
        found = shardc.trace(function, x).compile()(x)
        for part in found if isinstance(found, tuple) else (found,):
            assert np.isnan(np.asarray(part)).all()


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (np.linalg.inv, np.zeros((0, 0))),
        (lambda a: np.linalg.solve(a, a[:, :0]), np.eye(2)),
        (lambda a: np.take(a, [], axis=0), np.ones((2, 3))),
    ],
)
def test_empty_arrays_have_the_shape_of_numpy(function: Callable[[Any], Any], x: Any) -> None:
    found = np.asarray(shardc.trace(function, x).compile()(x))
    expected = function(x) if function is not np.linalg.inv else x
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
