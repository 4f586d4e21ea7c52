"""Running totals along split dimensions, and what programs make of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, run_partitioned, with_shardings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import Window, WindowDim
from shardc.hlo.ir.types import array_shape

MESH = Mesh({"x": 4})


@pytest.mark.parametrize("start", [0, 3, 7])
def test_a_slice_of_no_elements_of_a_split_dimension(start: int) -> None:
    """As recursive halving writes them for odd lengths."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", 7, 2))
    none = b.add("slice", x, slice=((start, start, 1), (0, 2, 1)))
    made = b.build(b.add("concatenate", x, none, dimensions=(0,)))
    check(with_shardings(made, MESH, lambda i: layout(MESH, "x" if i.shape.dims[0] else None, None)))
    made = b.build(none)
    check(with_shardings(made, MESH, lambda i: layout(MESH, "x", None)))


def window(dims: tuple[int, ...], dim: int, backwards: bool) -> Window:
    n = dims[dim]
    edge = WindowDim(n, pad_high=n - 1) if backwards else WindowDim(n, pad_low=n - 1)
    return Window(tuple(edge if d == dim else WindowDim(1) for d in range(len(dims))))


def recurrence() -> Computation:
    """(a, b) then (c, d) is (a c, b c + d): what y = a y + b becomes over several steps; the order counts."""
    b = Builder("then")
    first, second = ([b.parameter(array_shape("s32")) for _ in range(2)] for _ in range(2))
    factor = b.add("multiply", first[0], second[0])
    return b.build(b.add("tuple", factor, b.add("add", b.add("multiply", first[1], second[0]), second[1])))


def recurrences(dims: tuple[int, ...], dim: int, backwards: bool) -> Computation:
    b = Builder("main")
    x, y = (b.parameter(array_shape("s32", *dims)) for _ in range(2))
    initials = b.constant(1, "s32"), b.constant(0, "s32")
    view = window(dims, dim, backwards)
    return b.build(b.add("reduce-window", x, y, *initials, window=view, to_apply=recurrence()))


def test_recurrences_of_two_arrays() -> None:
    for seed in range(30):
        r = random.Random(seed)
        mesh = r.choice((MESH, Mesh({"x": 2, "y": 4}), Mesh({"x": 3, "y": 2})))
        dims = tuple(r.randint(1, 9) for _ in range(r.randint(1, 3)))
        made = recurrences(dims, r.randrange(len(dims)), r.random() < 0.5)
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


def test_totals_of_two_arrays_are_gathered_together() -> None:
    made = recurrences((37, 3), 0, False)
    local = check(with_shardings(made, MESH, lambda i: layout(MESH, *("x", None)[: i.shape.rank])))
    moved = [i.shape for i in local.instructions() if i.opcode == "all-gather"]
    assert sum(leaf.size for s in moved for leaf in s.leaves()) == 2 * 4 * 3
    assert set(collectives(local)) == {"all-gather"}


@pytest.mark.parametrize("backwards", [False, True])
def test_sums_of_logarithms(backwards: bool) -> None:
    """max(a, b) + log(1 + exp(min - max)), whose identity is minus infinity."""
    body = Builder("logaddexp")
    p, q = (body.parameter(array_shape("f32")) for _ in range(2))
    high, low = body.add("maximum", p, q), body.add("minimum", p, q)
    gap = body.add(
        "select",
        body.add("compare", high, low, direction="EQ"),
        body.constant(0.0, "f32"),
        body.add("subtract", low, high),
    )
    more = body.build(body.add("add", high, body.add("log-plus-one", body.add("exponential", gap))))
    b = Builder("main")
    x, least = b.parameter(array_shape("f32", 5, 30)), b.constant(-np.inf, "f32")
    made = b.build(b.add("reduce-window", x, least, window=window((5, 30), 1, backwards), to_apply=more))
    module = with_shardings(made, MESH, lambda i: layout(MESH, *(None, "x")[: i.shape.rank]))
    given = np.random.default_rng(0).standard_normal((5, 30)).astype(np.float32)
    local, (got,) = run_partitioned(module, [given])
    np.testing.assert_allclose(got, evaluate(module, [given])[0], rtol=1e-5, atol=1e-6)
    assert collectives(local) == ["all-gather"]
