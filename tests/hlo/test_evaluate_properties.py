"""Properties: sorting and folding by arbitrary bodies agree with plain Python on any size."""

from __future__ import annotations

from functools import cmp_to_key, reduce
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Computation
from shardc.hlo.ir.types import array_shape

BOUNDED = settings(deadline=None, max_examples=60, derandomize=True)
S = array_shape("s32")
LISTS = st.lists(st.integers(-4, 4), min_size=0, max_size=33)


def by_two_keys() -> Computation:
    """First key downwards, then second key upwards: not a function of one element compared."""
    b = Builder("by_two_keys")
    a0, b0, a1, b1, _, _ = (b.parameter(S) for _ in range(6))
    greater = b.add("compare", a0, b0, direction="GT")
    tied = b.add("compare", a0, b0, direction="EQ")
    less = b.add("compare", a1, b1, direction="LT")
    return b.build(b.add("or", greater, b.add("and", tied, less)))


@BOUNDED
@given(LISTS, st.randoms(use_true_random=False))
def test_sort_is_stable_for_any_comparator(first: list[int], random: Any) -> None:
    second = [random.randint(-1, 1) for _ in first]
    b = Builder("main")
    n = len(first)
    keys = [b.parameter(array_shape("s32", n)) for _ in range(3)]
    b.add("sort", *keys, dimensions=(0,), to_apply=by_two_keys())
    arrays = [np.array(v, np.int32) for v in (first, second, list(range(n)))]
    found = evaluate(make_module("m", b.build()), arrays)
    rows = sorted(
        zip(first, second, range(n), strict=True), key=cmp_to_key(lambda p, q: (q[0] - p[0]) or (p[1] - q[1]))
    )
    assert [tuple(int(v) for v in row) for row in zip(*found, strict=True)] == rows


def affine() -> Computation:
    """Composition of x -> p x + q: associative, not commutative; integers wrap, so every order is exact."""
    b = Builder("compose")
    p, q, r, s = (b.parameter(S) for _ in range(4))
    shifted = b.add("add", b.add("multiply", r, q), s)
    return b.build(b.add("tuple", b.add("multiply", p, r), shifted))


@BOUNDED
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), max_size=40))
def test_reduce_keeps_the_order(maps: list[tuple[int, int]]) -> None:
    b = Builder("main")
    n = len(maps)
    p, q = (b.parameter(array_shape("s32", n)) for _ in range(2))
    one, zero = b.constant(1, "s32"), b.constant(0, "s32")
    b.add("reduce", p, q, one, zero, dimensions=(0,), to_apply=affine())
    arrays = [np.array([m[k] for m in maps], np.int32) for k in range(2)]
    found = [int(v) for v in evaluate(make_module("m", b.build()), arrays)]
    whole = reduce(lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]), maps, (1, 0))
    assert found == [(v + 2**31) % 2**32 - 2**31 for v in whole]


@BOUNDED
@given(LISTS, st.integers(-40, 40), st.integers(-40, 40), st.integers(0, 3))
def test_pad(values: list[int], low: int, high: int, gap: int) -> None:
    spread: list[int] = []
    for k, v in enumerate(values):
        spread += ([7] * gap if k else []) + [v]
    size = low + high + len(spread)
    if size < 0:
        return
    expected = [spread[k] if 0 <= k < len(spread) else 7 for k in range(-low, size - low)]
    b = Builder("main")
    x = b.parameter(array_shape("s32", len(values)))
    b.add("pad", x, b.constant(7, "s32"), padding=((low, high, gap),))
    assert evaluate(make_module("m", b.build()), [np.array(values, np.int32)])[0].tolist() == expected
