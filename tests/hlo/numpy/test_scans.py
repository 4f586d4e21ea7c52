"""Running totals and counts as NumPy programs write them: NumPy's answer, and what devices send for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from tests.hlo.numpy.trace_support import compile_and_run, traced

N = 1 << 10


def over_devices(function: Callable[..., Any], args: list[Any], devices: int) -> tuple[list[Any], dict[str, Any]]:
    """Results with every argument split by rows, and the report."""
    program = shardc.trace(function, *args, mesh=Mesh({"x": devices}))
    program = program.annotate({p.name: P("x") for p in program.module.parameters})
    partitioned = program.partition()
    made = partitioned.compile("cpu")(*args)
    results = made if isinstance(made, (list, tuple)) else [made]
    return [np.asarray(r) for r in results], partitioned.report()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_running_totals_are_those_of_numpy(dtype: str) -> None:
    x = np.random.default_rng(3).standard_normal((5, 211)).astype(dtype)
    x[0, 0] = -0.0
    for function in (np.cumsum, np.cumprod, np.maximum.accumulate):
        for axis in (0, 1):
            (got,) = compile_and_run(traced(lambda x, f=function, a=axis: f(x, axis=a), [x]), [x])
            wanted = function(x, axis=axis)
            # Sums are grouped in blocks, which rounds less than NumPy's order.
            scale = 0 if function is np.maximum.accumulate else 64 * np.finfo(dtype).eps
            np.testing.assert_allclose(got, wanted, rtol=scale, atol=scale)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


@pytest.mark.parametrize("function", [np.cumsum, np.cumprod, np.minimum.accumulate])
def test_devices_send_a_total_each(function: Callable[..., Any]) -> None:
    x = 1 + np.random.default_rng(4).standard_normal(N) / N
    (got,), report = over_devices(function, [x], 4)
    np.testing.assert_allclose(got, function(x), rtol=1e-13)
    assert report["wire_bytes"] == 3 * x.itemsize
    assert report["peak_bytes"] <= 2 * x.nbytes // 4 + 1024


COUNTS: dict[str, tuple[Callable[..., Any], int]] = {
    "histogram": (lambda x: np.histogram(x, bins=16, range=(-2, 2))[0], 16 * 8),
    "histogram edges": (lambda x: np.histogram(x, np.linspace(-2, 2, 17) ** 3)[0], 16 * 8),
    "histogram2d": (lambda x: np.histogram2d(x, x * x, 8, [(-2, 2), (0, 4)])[0], 64 * 8),
    "bincount": (lambda x: np.bincount((4 * np.abs(x)).astype(np.int64), minlength=40), 40 * 8),
    "digitize": (lambda x: np.digitize(x, np.linspace(-2, 2, 17)), 0),
    "searchsorted": (lambda x: np.searchsorted(np.linspace(-2, 2, 65), x), 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_devices_send_the_bins_only(name: str) -> None:
    function, sent = COUNTS[name]
    x = np.random.default_rng(5).standard_normal(N)
    x[7] = np.nan
    x[:5] = -2, 2, 0.25, 0.5, -0.25
    if name == "bincount":
        x[7] = 0
    (got,), report = over_devices(function, [x], 2)
    np.testing.assert_array_equal(got, function(x))
    assert report["wire_bytes"] == sent
    assert report["peak_bytes"] <= 8 * x.nbytes
