"""Complex numbers, and where a type of result is easily another one than NumPy's."""

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
