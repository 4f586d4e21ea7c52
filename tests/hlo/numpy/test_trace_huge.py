"""Traced values have no memory: indices of every kind mean what they mean in NumPy, for shapes that no memory holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.errors import ShardcError, UnsupportedError
from shardc.hlo.numpy.strides import Strides
from shardc.hlo.numpy.trace import ShapeDtype, trace_function
from tests.hlo.numpy.trace_support import check, samples, traced

FAST = settings(max_examples=150, deadline=None)


@st.composite
def views(draw: Any) -> tuple[Any, Strides]:
    """An array that was transposed, indexed and broadcast, and the same in numbers."""
    array = np.zeros(draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4)), np.uint8)
    steps = Strides.dense(array.shape)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["transpose", "index", "broadcast"]))
        if kind == "transpose":
            order = draw(st.permutations(range(array.ndim)))
            array, steps = array.transpose(order), steps.transpose(order)
        elif kind == "index":
            items = [
                draw(st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2), 0]))
                if n
                else slice(None)
                for n in array.shape
            ]
            items.insert(draw(st.integers(0, len(items))), None)
            array, steps = array[tuple(items)], steps.index(items)
        else:
            dims = (2, *(3 if n == 1 else n for n in array.shape))
            array, steps = np.broadcast_to(array, dims), steps.broadcast(dims)
    return array, steps


@st.composite
def shapes_of(draw: Any, size: int) -> tuple[int, ...]:
    if not size:
        return (0, 2)
    dims = []
    while size > 1:
        dims.append(draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0])))
        size //= dims[-1]
    for _ in range(draw(st.integers(0, 2))):
        dims.insert(draw(st.integers(0, len(dims))), 1)
    return tuple(dims)


@given(st.data())
@FAST
def test_views_are_views_where_they_are_in_numpy(data: Any) -> None:
    array, steps = data.draw(views())
    assert steps.dims == array.shape
    dims = data.draw(shapes_of(array.size))
    try:
        wanted = np.reshape(array, dims, copy=False)
    except ValueError:
        wanted = None
    got = steps.reshape(dims)
    assert (got is None) == (wanted is None)
    if got is not None and wanted is not None and wanted.size:
        assert [s for s, n in zip(got.steps, dims, strict=True) if n > 1] == [
            s for s, n in zip(wanted.strides, dims, strict=True) if n > 1
        ]


@st.composite
def slices(draw: Any, n: int) -> slice:
    far = n + max(n // 2, 2)
    bound = st.one_of(st.none(), st.integers(-far, far), st.integers(-3, 3))
    return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, n + 1, -1, -2, -n - 1])))


@st.composite
def indices(draw: Any, shape: tuple[int, ...], *, masks: bool) -> Any:
    """Integers (outside, too), slices, arrays and lists of positions, new axes, an ellipsis, bools, known masks."""
    items: list[Any] = []
    count = draw(st.integers(0, len(shape) + 1))
    ends = draw(st.integers(0, count))
    used = shape[:ends] + shape[len(shape) - (count - ends) :] if count <= len(shape) else (*shape, 3)
    arrays = (draw(st.sampled_from([(2,), (1,), (0,), (2, 1)])), ()) if draw(st.booleans()) else None
    for k, n in enumerate(used):
        if k == ends and count <= len(shape):
            items.append(Ellipsis)
        kind = draw(st.integers(0, 9))
        if kind < 3:
            outside = draw(st.integers(0, 9)) == 0
            items.append(draw(st.sampled_from([n, -n - 1])) if outside or not n else draw(st.integers(-n, n - 1)))
        elif kind < 7 or arrays is None or not n:
            items.append(draw(slices(n)))
        elif kind == 7 and masks and n < 10:
            items.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
        else:
            dims = draw(st.sampled_from(arrays))
            size = math.prod(dims)
            top = n if draw(st.integers(0, 9)) == 0 else n - 1
            chosen = draw(st.lists(st.integers(-n, top), min_size=size, max_size=size))
            items.append(np.array(chosen, np.int64).reshape(dims))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.integers(0, 9)) == 0:
        items.insert(draw(st.integers(0, len(items))), draw(st.booleans()))
    if draw(st.integers(0, 30)) == 0:
        items.append(Ellipsis)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def _outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (IndexError, ValueError) as e:
        return type(e)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_indices_mean_what_they_mean_in_numpy(data: Any) -> None:
    """Read, written, and read again as a view of a changed base; errors are of NumPy's type."""
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    index = data.draw(indices(shape, masks=True))
    x = samples("i4", *shape)

    def function(x: Any) -> Any:
        before = x[index] + 0
        x[index] = 7
        return before, x

    wanted = _outcome(lambda: function(x.copy()))
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            traced(function, [x])
    else:
        check(function, [x], 0, repr(index))


@given(st.data())
@FAST
def test_indices_of_huge_arrays(data: Any) -> None:
    """NumPy indexes an array of stride 0 in place of the huge one: the shape that it finds is ours."""
    shape = tuple(data.draw(st.sampled_from([(1 << 40,), (1 << 22, 3), (5, 1 << 30, 2), (1 << 20, 1 << 20)])))
    index = data.draw(indices(shape, masks=False))
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, (np.ndarray, bool)) for i in items):
        shape = tuple(min(n, 1 << 20) for n in shape[:1]) + tuple(min(n, 5) for n in shape[1:])
        index = data.draw(indices(shape, masks=False))
    shadow = np.broadcast_to(np.uint8(0), shape)
    wanted = _outcome(lambda: shadow[index].shape)
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            trace_function(lambda x: (2 * x)[index], [ShapeDtype(shape)])
    else:
        assert trace_function(lambda x: (2 * x)[index], [ShapeDtype(shape)]).module.results[0].dims == wanted


HUGE: list[tuple[Callable[[Any], Any], tuple[int, ...]]] = [
    (lambda x: (2 * x)[-1], ()),
    (lambda x: x[::-3][1:-1], (366503875924,)),
    (lambda x: x.reshape(-1, 4).T.reshape(-1), (1 << 40,)),
    (lambda x: x.reshape(1 << 20, -1)[:, -1], (1 << 20,)),
    (lambda x: np.zeros(x.shape, like=x) + x, (1 << 40,)),
    (lambda x: np.arange(1 << 40, like=x) + x, (1 << 40,)),
    (lambda x: np.full(x.shape, x[0], like=x), (1 << 40,)),
    (lambda x: np.eye(1 << 20, like=x) @ x.reshape(1 << 20, -1), (1 << 20, 1 << 20)),
    (lambda x: np.pad(x, 3, mode="reflect"), ((1 << 40) + 6,)),
    (lambda x: np.delete(x, -1), ((1 << 40) - 1,)),
    (np.median, ()),
    (lambda x: np.lib.stride_tricks.sliding_window_view(x, 3), ((1 << 40) - 2, 3)),
    (lambda x: np.roll(x, 3).sum(), ()),
    (lambda x: x * np.size(x), (1 << 40,)),
]


@pytest.mark.parametrize(("function", "dims"), HUGE, ids=[str(k) for k in range(len(HUGE))])
def test_shapes_up_to_two_to_the_forty_trace(function: Callable[[Any], Any], dims: tuple[int, ...]) -> None:
    assert trace_function(function, [ShapeDtype(1 << 40)]).module.results[0].dims == dims


@pytest.mark.parametrize(
    "function",
    [sum, lambda x: np.delete(x, [1, 5]), np.vander, lambda x: np.convolve(x, x), list],
)
def test_what_would_take_a_step_or_a_table_per_element_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"a loop of|an index array of") as caught:
        trace_function(lambda x: function(x) or x, [ShapeDtype(1 << 40)])
    assert "test_trace_huge.py" in str(caught.value.where)


def test_an_index_outside_is_numpys_error_before_anything_is_read() -> None:
    for index in (1 << 40, -(1 << 40) - 1, [0, 1 << 40], (0, 0)):
        with pytest.raises(IndexError):
            trace_function(lambda x, index=index: x[index], [ShapeDtype(1 << 40)])
    with pytest.raises((ValueError, ShardcError)):
        trace_function(lambda x: x.reshape(3, -1), [ShapeDtype(1 << 40)])


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_padding_is_numpys_for_all_widths(mode: Any) -> None:
    for n in range(1, 6):
        for low, high in ((0, 0), (1, 2), (7, 0), (0, 9), (11, 13)):
            check(lambda x, w=(low, high): np.pad(x, w, mode=mode), [np.arange(n)], 0, f"{n} {low} {high}")
