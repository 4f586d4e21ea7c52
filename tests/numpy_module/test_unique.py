"""`shardc.numpy.unique` with a size, beside `jax.numpy.unique`: plain, traced, split."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy
import pytest

import shardc
import shardc.numpy as np
from shardc import Mesh, P
from shardc.hlo.errors import InputError, UnsupportedError

ALL = {"return_index": True, "return_inverse": True, "return_counts": True}


@pytest.mark.parametrize("size", [3, 5, 9])
@pytest.mark.parametrize("fill", [None, 7])
def test_as_jax_has_it(size: int, fill: Any) -> None:
    """Too few, as many, more than there are; values, first places, numbers of values, counts."""
    x = numpy.random.default_rng(size).integers(-2, 3, (6, 8)).astype(numpy.int32)
    wanted = jnp.unique(x, **ALL, size=size, fill_value=fill)
    plain = np.unique(x, **ALL, size=size, fill_value=fill)
    for devices in (1, 2):
        program = shardc.trace(
            lambda x: np.unique(x, **ALL, size=size, fill_value=fill), x, mesh=Mesh({"d": devices})
        ).annotate({"x": P("d")})
        made = program.partition().compile("cpu")(x)
        for got, also, want in zip(made, plain, wanted, strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(got), want)
            numpy.testing.assert_array_equal(also, want)


def test_nans() -> None:
    x = numpy.array([numpy.nan, 1.0, numpy.nan, -0.0, 0.0])
    for equal, count in ((True, 3), (False, 4)):
        made = shardc.trace(lambda x, e=equal: np.unique(x, equal_nan=e, size=4), x).partition().compile("cpu")(x)
        wanted = numpy.unique(x, equal_nan=equal)
        assert len(wanted) == count
        numpy.testing.assert_array_equal(numpy.asarray(made)[:count], wanted)


def test_without_a_size() -> None:
    x = numpy.array([3, 1, 3])
    numpy.testing.assert_array_equal(np.unique(x), [1, 3])
    with pytest.raises(UnsupportedError, match="size"):
        shardc.trace(np.unique, x)
    with pytest.raises(InputError, match="axis"):
        np.unique(x, axis=0, size=2)


def test_devices_send_as_sorts_do() -> None:
    """No device gets more than its part of anything; few values are no more than the sort."""
    x = numpy.random.default_rng(2).integers(0, 1 << 17, 1 << 18).astype("f4")

    def sent(function: Any) -> Any:
        program = shardc.trace(function, x, mesh=Mesh({"d": 2}), in_shardings=P("d"), out_shardings=P("d")).partition()
        for got, want in zip(program.compile("cpu")(x), function(x), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(got), want)
        report = program.report()
        assert all(c["wire_bytes"] < x.nbytes / 4 for c in report["collectives"] if c["op"] == "all-gather")
        return report["wire_bytes"]

    sort = sent(lambda x: [np.sort(x)])
    assert sent(lambda x: [np.unique(x, size=64)]) < 1.1 * sort
    assert sent(lambda x: [np.unique(x, size=len(x))]) < 2.5 * sort
    assert sent(lambda x: np.unique(x, return_counts=True, size=len(x))) < 3.5 * sort
    assert sent(lambda x: np.unique(x, return_inverse=True, size=1024)) < 5.5 * sort
