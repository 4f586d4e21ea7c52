"""Loops along a split dimension: each shard goes along its own rows, and gets what a loop along all rows gets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import gather_results, scatter_arguments
from shardc.partitioner.partition import partition
from shardc.partitioner.prepare.recurrences.split_recurrences import SplitRecurrences

Function = Callable[..., Any]
MESHES = (Mesh({"x": 2}), Mesh({"x": 3}), Mesh({"x": 4}), Mesh({"x": 2, "y": 2}))


def over(function: Function, args: Sequence[Any], mesh: Mesh) -> tuple[list[Any], int, bool]:
    """Results of the partitioned program, with arguments split by rows; bytes sent; was a loop split?"""
    program = shardc.trace(function, *args)
    names = [*program.module.argument_names]
    program = program.annotate({n: P("x") for n, a in zip(names, args, strict=True) if np.ndim(a)}, mesh=mesh)
    propagated = program.propagate().module
    after = SplitRecurrences().run(propagated)
    verify(after)
    wanted = evaluate(propagated, args)
    for got, want in zip(evaluate(after, args), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    local = partition(propagated)
    results = gather_results(local, evaluate_spmd(local, scatter_arguments(local, args)))
    return results, program.partition().report()["wire_bytes"], after is not propagated


def recurrence(a: Any, x: Any) -> Any:
    return shardc.scan(lambda c, ax: (ax[0] * c + ax[1],) * 2, np.float64(0), (a, x))[1]


def in_place(a: Any, x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        y[i] = a[i] * y[i - 1] + x[i]
        return y

    return shardc.fori_loop(1, len(x), step, x.copy())


def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    def forward(state: Any, row: Any) -> Any:
        above, right = state
        a, b, c, d = row
        pivot = b - a * above
        made = c / pivot, (d - a * right) / pivot
        return made, made

    def backward(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    zero = 0 * d[0]
    _, rows = shardc.scan(forward, (0 * c[0], zero), (a, b, c, d))
    return shardc.scan(backward, zero, rows, reverse=True)[1]


def thomas_in_place(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = len(d)

    def forward(i: Any, state: Any) -> Any:
        b, d = state
        w = a[i] / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
        return b, d

    b, d = shardc.fori_loop(1, n, forward, (b.copy(), d.copy()))

    def backward(k: Any, x: Any) -> Any:
        i = n - 2 - k
        x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
        return x

    x = d.copy()
    x[n - 1] = d[n - 1] / b[n - 1]
    return shardc.fori_loop(0, n - 1, backward, x)


def second_order(x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        y, before = state
        new = 1.2 * y - 0.5 * before + x
        return (new, y), new

    return shardc.scan(step, (np.float64(0), np.float64(0)), x)[1]


def segments(x: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = np.where(x > 1, x, 0.5 * c + x)
        return c, c

    return shardc.scan(step, np.float64(0), x)[1]


def without_carry(x: Any, y: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        y[i] = x[i] ** 2 + i
        return y

    return shardc.fori_loop(0, len(x), step, y)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def arguments(function: Function, n: int, *columns: int) -> list[Any]:
    if function in (thomas, thomas_in_place):
        return [normal(n), 4 + normal(n, seed=1) / 4, normal(n, seed=2), normal(n, *columns, seed=3)]
    if function in (recurrence, in_place):
        return [0.9 * normal(n), normal(n, seed=1)]
    return [normal(n), normal(n)] if function is without_carry else [normal(n)]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize(
    "function", [recurrence, in_place, thomas, thomas_in_place, second_order, segments, without_carry]
)
def test_each_shard_goes_along_its_rows(function: Function, mesh: Mesh) -> None:
    for n in (96, 61):
        args = arguments(function, n)
        (got,), sent, split = over(function, args, mesh)
        np.testing.assert_allclose(got, function(*[a.copy() for a in args]), rtol=1e-12, atol=1e-12)
        assert split
        assert n == 61 or sent <= 200 * (mesh.axis_size("x") - 1)


def test_scans_of_jax_compose_too() -> None:
    jax = pytest.importorskip("jax")

    def decays(keep: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, row: (row[0] * c + row[1],) * 2, x[0] * 0, (keep, x), reverse=True)[1]

    args = [np.exp(-np.abs(normal(48, 3))).astype("f4"), normal(48, 3, seed=1).astype("f4")]
    program = shardc.from_jax(decays, *args)
    partitioned = program.annotate({n: P("x") for n in program.module.argument_names}, mesh=Mesh({"x": 4})).partition()
    got = np.asarray(partitioned.compile("cpu")(*args))
    np.testing.assert_allclose(got, jax.jit(decays)(*args), rtol=1e-5, atol=1e-5)
    assert partitioned.report()["wire_bytes"] <= 3 * 3 * 3 * 4  # two numbers a column and shard, and the first row


def test_columns_stay_split_over_another_axis() -> None:
    mesh = Mesh({"x": 2, "y": 2})
    args = [*arguments(thomas, 32)[:3], normal(32, 8)]
    args[2] = np.repeat(args[2][:, None], 8, 1)
    program = shardc.trace(thomas, *args)
    split = dict(zip(program.module.argument_names, (P("x"), P("x"), P("x", "y"), P("x", "y")), strict=True))
    partitioned = program.annotate(split, mesh=mesh).partition()
    got = np.asarray(partitioned.compile("cpu")(*args))
    np.testing.assert_allclose(got, thomas(*args), rtol=1e-12, atol=1e-12)
    assert partitioned.report()["wire_bytes"] <= 16 * 8 * 8


def test_infinities_and_overflow_are_those_of_a_loop_along_all_rows() -> None:
    mesh = Mesh({"x": 4})
    growing = [np.full(400, 1e3), np.where(np.arange(400) == 399, 1.0, 0.0)]
    (got,), _, split = over(recurrence, growing, mesh)
    np.testing.assert_array_equal(got, recurrence(*growing))
    assert split
    for bad in (np.nan, np.inf):
        x = normal(40)
        x[3], x[30] = bad, 5.0
        (got,), _, split = over(segments, [x], mesh)
        np.testing.assert_allclose(got, segments(x), rtol=1e-12)
        assert split
    pivots = [np.ones(16), np.ones(16), np.ones(16), np.ones(16)]  # every second pivot is zero
    with np.errstate(all="ignore"):
        (got,), _, split = over(thomas, pivots, mesh)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(thomas(*pivots)))
    assert split


def test_what_only_moves_keeps_every_bit() -> None:
    def first_row_everywhere(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            y[i] = y[i - 1]
            return y

        return shardc.fori_loop(1, len(x), step, x.copy())

    def rows_before(x: Any) -> Any:
        return shardc.scan(lambda c, row: (row, c), x[0], x)[1]

    def exchanged(x: Any) -> Any:
        return shardc.scan(lambda c, row: ((c[1], c[0]), c[0] + row), (x[0], x[1]), x)[1]

    def sometimes(x: Any) -> Any:
        return shardc.scan(lambda c, row: (np.where(row[0] > 2, c + row, c), c), x[0], x)[1]

    x = np.array([[-0.0, 0.0, np.inf, -np.inf, np.nan, 1.5]] * 60)
    x[1:] = np.arange(354.0).reshape(59, 6)[::-1]
    x[1:6, 1] = -0.0
    x[5, 2:4] = np.inf, 3
    for function in (first_row_everywhere, rows_before, exchanged, sometimes):
        for mesh in MESHES:
            (got,), _, split = over(function, [x], mesh)
            want = function(x.copy())
            assert split, (function, mesh)
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got) & ~np.isnan(got), np.signbit(want) & ~np.isnan(want))


def test_what_does_not_compose_stays_a_loop_along_all_rows() -> None:
    def logistic(x: Any) -> Any:
        return shardc.scan(lambda c, x: (x * c * (1 - c),) * 2, np.float64(0.5), x)[1]

    def far_back(x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            y[i] = y[i - 1] + y[i - 2]
            return y

        return shardc.fori_loop(2, len(x), step, x)

    for function in (logistic, far_back):
        x = np.abs(normal(24)) / 4
        (got,), _, split = over(function, [x], Mesh({"x": 2}))
        np.testing.assert_allclose(got, function(x.copy()), rtol=1e-12)
        assert not split


def test_random_recurrences() -> None:
    for seed in range(24):
        r = random.Random(seed)
        function, args = _random_recurrence(r)
        got, _, split = over(function, args, r.choice(MESHES))
        want = function(*args)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
        assert split, f"seed {seed}"


def _random_recurrence(r: random.Random) -> tuple[Function, list[Any]]:
    """Up to three carried values that are mixed, with rows that scale, divide, reset and add; all that they were."""
    size, count, rows = r.randint(1, 3), r.randint(1, 3), r.randint(24, 60)
    columns = r.choice([(), (3,)])
    form = [[r.choice(["none", "scale", "divide", "negate"]) for _ in range(size)] for _ in range(size)]
    resets, reverse = [r.random() < 0.3 for _ in range(size)], r.random() < 0.5

    def step(state: Any, row: Any) -> Any:
        new = []
        for i in range(size):
            total = row[i % count]
            for j in range(size):
                x, k = state[j], row[(i + j) % count]
                if form[i][j] != "none":
                    scaled = {"scale": 0.3 * k * x, "divide": x / (k * k + 3), "negate": -0.2 * x}[form[i][j]]
                    total = total + scaled if r_add[i][j] else total - scaled
            new.append(np.where(row[0] > 1, row[0], total) if resets[i] else total)
        return tuple(new), (new[0] * new[-1], new[size // 2])

    r_add = [[r.random() < 0.5 for _ in range(size)] for _ in range(size)]
    start = tuple(np.full(columns, 0.5 * k) if columns else np.float64(0.5 * k) for k in range(size))

    def function(*rows: Any) -> Any:
        last, made = shardc.scan(step, start, rows, reverse=reverse)
        return (*last, *made)

    return function, [normal(rows, *columns, seed=r.randrange(1 << 30)) for _ in range(count)]
