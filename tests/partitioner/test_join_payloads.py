"""Arrays that are read in the order of a split sort go along with it: the bits, and what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P

Array = np.ndarray[Any, Any]
N = 10007


def _several(x: Array, y: Array, rows: Array) -> tuple[Array, ...]:
    order = np.argsort(x, kind="stable")
    return order, x[order], y.take(order), rows[order]


#: The function, and the bytes of an element that goes along: its key first, places last.
CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "itself": (lambda x, y, rows: x[np.argsort(x, kind="stable")], 4),
    "another": (lambda x, y, rows: y[np.argsort(x, kind="stable")], 4 + 8),
    "along an axis": (lambda x, y, rows: np.take_along_axis(y, np.argsort(x, kind="stable"), 0), 4 + 8),
    "rows": (lambda x, y, rows: rows[np.argsort(x, kind="stable")], 4 + 3 * 2),
    "several": (_several, 4 + 8 + 3 * 2 + 4),
    "backwards": (lambda x, y, rows: y[np.argsort(x, kind="stable")[::-1]], 4 + 8 + 2 * 8),
    "computed": (lambda x, y, rows: (x * 2 + y)[np.argsort(x, kind="stable")], 4 + 8),
}


@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("name", CASES)
def test_elements_are_sent_once(name: str, dtype: str) -> None:
    function, nbytes = CASES[name]
    rng = np.random.default_rng(5)
    x = rng.integers(-50, 50, N).astype(dtype)
    if dtype == "f4":
        x[::7], x[::11] = -0.0, np.nan
    args = x, rng.normal(size=N), rng.integers(-9, 9, (N, 3)).astype("i2")
    program = shardc.trace(function, *args, mesh=Mesh({"x": 2}), in_shardings=P("x")).partition()
    found, wanted = program.compile("cpu")(*args), function(*args)
    for got, want in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        assert np.asarray(got).tobytes() == want.tobytes()
    report = program.report()
    assert report["wire_bytes"] <= nbytes * (N / 4 + 600) + 4000
    assert max(c["wire_bytes"] for c in report["collectives"] if c["op"] == "all-gather") < 100


def test_the_peak_is_three_shards() -> None:
    """Argument, result and the sorted shard, in whose place the chunk of two devices comes."""
    x = np.random.default_rng(9).normal(size=1 << 20).astype("f4")
    program = shardc.trace(lambda x: x[np.argsort(x)], x, mesh=Mesh({"x": 2}), in_shardings=P("x")).partition()
    assert program.compile("cpu").memory_analysis()["peak_bytes"] < 3.01 * x.nbytes / 2


def test_programs_of_jax_send_no_array_either() -> None:
    """Its indices are columns, and its shuffles sort places in rounds."""
    jax = pytest.importorskip("jax")
    jnp, n = jax.numpy, 1 << 17

    def shuffled(x: Any, y: Any) -> Any:
        return x[jax.random.permutation(jax.random.key(3), n)]

    def best(x: Any, y: Any) -> Any:
        values, places = jax.lax.top_k(x, 16)
        return values, y[places]

    programs = (lambda x, y: x[jnp.argsort(x)], lambda x, y: y[jnp.argsort(x)], shuffled, best)
    rng = np.random.default_rng(4)
    args = rng.normal(size=n).astype("f4"), rng.normal(size=n).astype("f4")
    for function in programs:
        given = shardc.from_jax(jax.jit(function), *args)
        wanted = {"x": P("x"), "y": P("x")} | ({} if function is best else {"result": P("x")})
        known = {name: spec for name, spec in wanted.items() if name == "result" or name in given.arg_names}
        program = given.annotate(known, mesh=Mesh({"x": 2})).partition()
        gathers = [c for c in program.report()["collectives"] if c["op"] == "all-gather"]
        assert all(c["payload_bytes"] < 3000 for c in gathers)
        found, reference = program.compile()(*args), jax.jit(function)(*args)
        for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_writes_at_sorted_places_are_sorts() -> None:
    """Elements go back to where they were before the sort: places and values are sent once."""

    def function(x: Array, y: Array) -> tuple[Array, ...]:
        order = np.argsort(y, kind="stable")
        back, places = np.zeros_like(x), np.zeros_like(order)
        back[order], places[order] = x, np.arange(len(x), like=x)
        return back, places

    rng = np.random.default_rng(8)
    n = 1 << 17
    args = rng.integers(-50, 50, n).astype("i4"), rng.normal(size=n)
    program = shardc.trace(
        function, *args, mesh=Mesh({"x": 2}), in_shardings=P("x"), out_shardings=(P("x"), P("x"))
    ).partition()
    for got, want in zip(program.compile("cpu")(*args), function(*args), strict=True):
        assert np.asarray(got).tobytes() == want.tobytes()
    report = program.report()
    assert report["wire_bytes"] <= 1.1 * (8 + 4 + 4 + 4 + 4 + 8) * n / 4 + 20000
    assert max(c["wire_bytes"] for c in report["collectives"] if c["op"] == "all-gather") < 100


def test_what_depends_on_the_order_is_gathered() -> None:
    def function(x: Array) -> Array:
        order = np.argsort(x, kind="stable")
        return (x + order)[order]

    x = np.random.default_rng(6).normal(size=N)
    program = shardc.trace(function, x, mesh=Mesh({"x": 2}), in_shardings=P("x")).partition()
    np.testing.assert_array_equal(np.asarray(program.compile("cpu")(x)), function(x))


def test_an_argsort_of_floats_is_not_gathered() -> None:
    """Elements and places, or a gather of the elements, are as many bytes: every device would sort all of them."""
    x = np.random.default_rng(7).normal(size=1 << 17).astype("f4")
    program = shardc.trace(np.argsort, x, mesh=Mesh({"x": 2}), in_shardings=P("x")).partition()
    assert program.report()["wire_bytes"] < 1.1 * 4 * x.size / 2
    gathers = [c["wire_bytes"] for c in program.report()["collectives"] if c["op"] == "all-gather"]
    assert max(gathers) < 100
