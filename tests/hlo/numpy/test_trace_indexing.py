"""Indexing: random indices, known and traced, reads, writes and views, against NumPy itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate import evaluate
from tests.hlo.numpy.trace_support import check, compile_and_run, leaves_of, samples, traced

FAST = settings(max_examples=150, deadline=None)


@st.composite
def shapes(draw: Any) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))


@st.composite
def slices(draw: Any, n: int) -> slice:
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))


@st.composite
def basic_items(draw: Any, n: int) -> Any:
    return draw(st.one_of(st.integers(-n, n - 1), slices(n)))


@st.composite
def positions(draw: Any, n: int) -> Any:
    dims = draw(st.sampled_from([(2,), (1,), (3,), (2, 1)]))
    count = int(np.prod(dims))
    return np.array(draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)), np.int64).reshape(dims)


@st.composite
def basic_indices(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices and integers for some dimensions, the others in an ellipsis or left out, and perhaps a new axis."""
    place, count = draw(st.integers(0, len(shape))), draw(st.integers(0, len(shape)))
    items: list[Any] = [draw(basic_items(n)) for n in shape[:place]]
    if place + count < len(shape) or draw(st.booleans()):
        items += [Ellipsis, *(draw(basic_items(n)) for n in shape[max(place, len(shape) - count) :])]
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


@st.composite
def advanced_indices(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Arrays of one shape (or that broadcast), integers, slices and new axes in any order."""
    items: list[Any] = []
    for n in shape:
        if draw(st.integers(0, 2)) == 0:
            items.append(draw(basic_items(n)))
        else:
            items.append(draw(positions(n))[:1] if draw(st.booleans()) else draw(st.integers(-n, n - 1)))
    place = draw(st.integers(0, len(items) - 1))
    items[place] = draw(positions(shape[place]))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


@given(st.data())
@FAST
def test_basic_reads(data: Any) -> None:
    shape = data.draw(shapes())
    index = data.draw(basic_indices(shape))
    check(lambda x: x[index], [samples("f4", *shape)], 0, str(index))


@given(st.data())
@FAST
def test_basic_writes(data: Any) -> None:
    shape = data.draw(shapes())
    index = data.draw(basic_indices(shape))

    def function(x: Any, y: Any) -> Any:
        x[index] = y
        x[index] += 2
        return x

    check(function, [samples("f4", *shape), np.float32(7)], 0, str(index))


@given(st.data())
@FAST
def test_advanced_reads(data: Any) -> None:
    """With known positions, and with the same ones traced."""
    shape = data.draw(shapes())
    index = data.draw(advanced_indices(shape))
    x = samples("f4", *shape)
    check(lambda x: x[index], [x], 0, str(index))
    traced_ones = [i for i in index if isinstance(i, np.ndarray)]

    def function(x: Any, *arrays: Any) -> Any:
        rest = iter(arrays)
        return x[tuple(next(rest) if isinstance(i, np.ndarray) else i for i in index)]

    check(function, [x, *traced_ones], 0, str(index))


@given(st.data())
@FAST
def test_advanced_writes(data: Any) -> None:
    shape = data.draw(shapes())
    index = data.draw(advanced_indices(shape))
    target = samples("i4", *shape)
    value = np.arange(target[index].size, dtype=np.int32).reshape(target[index].shape)

    def put(x: Any, y: Any) -> Any:
        x[index] = 5
        np.add.at(x, index, y)
        return x

    check(put, [target, value], 0, str(index))


@given(st.data())
@FAST
def test_writes_go_through_views(data: Any) -> None:
    """A chain of views, changed at the end: the base changes, and the other views of it."""
    shape = data.draw(shapes())
    steps = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    index = data.draw(basic_indices(shape))

    def chain(x: Any) -> list[Any]:
        views = [x[index]]
        for step in steps:
            v = views[-1]
            if not v.ndim:
                break
            views.append([v.T, v[::-1], v.reshape(-1), v.swapaxes(0, -1), v[..., None]][step])
        return views

    def function(x: Any) -> Any:
        views = chain(x)
        if views[-1].ndim:
            views[-1][...] = 9
            views[-1][:1] *= 2
        return x, views

    x = samples("i4", *shape)
    if not isinstance(x[index], np.ndarray):
        return
    check(function, [x], 0, f"{index} {steps}")


def test_compiled_reads_and_writes() -> None:
    def function(x: Any, i: Any, rows: Any) -> Any:
        a = x[i]
        b = x[rows, 1:]
        x[i, 2:] = 7
        x[:, ::-2] += 1
        x[x > 8] = 0
        return a, b, x, x[rows][:, rows], x[..., None, i]

    args = [samples("f4", 4, 6), np.int64(-2), np.array([3, -1, 0])]
    wanted = leaves_of(function(args[0].copy(), *args[1:]))
    for got, w in zip(compile_and_run(traced(function, args), args), wanted, strict=True):
        np.testing.assert_array_equal(got, w)


def test_masks() -> None:
    def function(x: Any, y: Any) -> Any:
        x[x < 0] = 0
        x[np.array([True, False, True])] = 4
        x[(y > 0)[:, 0]] = np.arange(4)
        return x, x[np.array([True, False, True])], x[[0, 2], :][:, [True, False, False, True]]

    check(function, [samples("f4", 3, 4), samples("f4", 3, 4, seed=3)], 0)


def test_selections_under_one_mask() -> None:
    def function(x: Any, y: Any, c: Any) -> Any:
        m = x > 0
        x[m] *= 2
        x[m] = x[m] ** 2 + y[m] - 1
        x[x < -1] = -x[x < -1]
        rows = x[:, 0] > 0
        y[rows] += c
        y[rows] = np.exp(-y[rows]) * 3
        return x, y, x[m].sum(), x[m].mean(), np.std(y[rows]), np.any(x[m] > 3), np.count_nonzero(x[m])

    args = [samples("f8", 5, 4), samples("f8", 5, 4, seed=3), samples("f8", 4)]
    made = check(function, args)
    wanted = leaves_of(function(*[a.copy() for a in args]))
    for got, w in zip(compile_and_run(made, args), wanted, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12)


def other_mask(x: Any) -> Any:
    x[x > 0] = x[x > 1]
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        other_mask,
        lambda x: x[x > 0] + x[x > 1],
        lambda x: x[x > 0] + x[0],
        lambda x: np.sort(x[x > 0]),
        lambda x: x[x > 0][0],
        lambda x: len(x[x > 0]),
        lambda x: x[x > 0].shape,
        lambda x: np.concatenate([x[x > 0], x[0]]),
        lambda x: x[:, x[0] > 0],
        lambda x: x[x > 0].max(),
    ],
)
def test_other_uses_of_selections_are_refused(function: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"x\[mask\]") as caught:
        traced(function, [samples("f4", 3, 4)])
    assert "np.where" in str(caught.value.fix)


def test_known_indices_of_every_kind() -> None:
    x = samples("f4", 3, 4, 5)
    for index in (
        [2, 0],
        ([0, 1], [1, 2]),
        (slice(None), [0, 1], slice(1, 3), None),
        ([0, 1], slice(None), [1, 2]),
        (0, slice(None), [1, 2]),
        (None, [[0], [1]], [1, 3]),
        (..., np.array(2)),
        np.zeros(0, int),
        (np.ones((3, 4), bool), 1),
        True,
        (np.int8(1), ..., np.uint8(0)),
        (),
    ):
        check(lambda x, index=index: x[index], [x], 0, repr(index))


@pytest.mark.parametrize(
    "index", [3, (0, 0, 0), [5], 1.5, (..., ...), "a", ([0, 1], [0, 1, 2]), np.ones((2, 2), bool), [0.5]], ids=repr
)
def test_wrong_indices_fail_as_in_numpy(index: Any) -> None:
    x = samples("f4", 3, 4)
    with pytest.raises(IndexError):
        x[index]
    with pytest.raises(IndexError):
        traced(lambda x: x[index], [x])


def test_positions_outside_of_a_compiled_read_are_clamped() -> None:
    made = traced(lambda x, i: x[i], [samples("f4", 3), np.array([7, -9])])
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(evaluate(made.module, [x, np.array([7, -9])])[0], [3, 1])


def test_in_place_changes_of_an_argument_stay_inside() -> None:
    def function(x: Any) -> Any:
        x += 1
        return x

    x = samples("f4", 3)
    before = x.copy()
    made = traced(function, [x])
    np.testing.assert_array_equal(evaluate(made.module, [x])[0], before + 1)
    np.testing.assert_array_equal(x, before)


def test_scalars_are_bound_anew() -> None:
    """NumPy's scalars do not change, so a name for the old value keeps it."""

    def function(x: Any) -> Any:
        total = x.sum()
        old = total
        total += 1
        return old, total

    check(function, [samples("f8", 4)])


def test_read_only_views_refuse_writes() -> None:
    def function(x: Any) -> Any:
        np.broadcast_to(x, (2, 3))[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        traced(function, [samples("f4", 3)])
