"""What functions of NumPy return as views, and assignments through them: for arrays and traced values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError, UnsupportedError

MESH = Mesh({"a": 2})


def diagonal(x: Any) -> None:
    np.einsum("ii->i", x[:, :, 0])[:] = 9


def diagonal_of_a_part(x: Any) -> None:
    np.einsum("ii->i", x[1:, :3, 1])[:] += np.arange(3)


def transposed(x: Any) -> None:
    np.einsum("ijk->kij", x)[1, 2] = 7


def two_of_three(x: Any) -> None:
    np.einsum("iik->ki", x)[1, 2] = 7


def read_after_a_change(x: Any) -> Any:
    view = np.einsum("iik->ki", x)
    x[1] = 5
    return view


def compressed(x: Any) -> Any:
    return np.compress([True, False, True], x, 0) + np.compress([False, True, True, False], x, 1)[:2, :1]


def extracted(x: Any) -> Any:
    return np.extract(np.arange(32).reshape(4, 4, 2) % 3 == 0, x)


def unravelled(x: Any) -> Any:
    places = np.unravel_index(np.argmax(x, axis=0) * 5, (4, 3, 2))
    others = np.unravel_index(np.argmax(x, axis=0) * 5, (4, 3, 2), order="F")
    return np.stack([*places, *others])


def ravelled(x: Any) -> Any:
    places = (x[..., 0].astype(int), x[..., 1].astype(int))
    wrapped = np.ravel_multi_index(places, (5, 7), mode=("wrap", "clip"))
    return wrapped + np.ravel_multi_index(places, (40, 50), order="F")


CASES: tuple[Callable[[Any], Any], ...] = (
    diagonal,
    diagonal_of_a_part,
    transposed,
    two_of_three,
    read_after_a_change,
    compressed,
    extracted,
    unravelled,
    ravelled,
)


def sample() -> Any:
    return np.arange(32.0).reshape(4, 4, 2)


def shards() -> Any:
    return shardc.array(sample(), (MESH, P("a")), copy=True)


def traced(function: Callable[[Any], Any]) -> Any:
    return shardc.trace(function, sample(), mesh=MESH, in_shardings=(P("a"),)).compile()(sample())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_views(case: Callable[[Any], Any]) -> None:
    def whole(x: Any) -> Any:
        made = case(x)
        return x if made is None else made

    wanted = whole(sample())
    for found in (whole(shards()), traced(whole)):
        np.testing.assert_array_equal(np.asarray(found), wanted)
        assert found.dtype == wanted.dtype


def swap(x: Any) -> Any:
    x[0], x[1] = x[1], x[0]


def shuffle(x: Any) -> Any:
    np.random.default_rng(3).shuffle(x)


@pytest.mark.parametrize("function", [swap, shuffle], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore:you are shuffling", "ignore:random numbers that")
def test_a_swap_of_views_is_an_error(function: Callable[[Any], Any]) -> None:
    for run in (lambda: function(shards()), lambda: traced(function)):
        with pytest.raises(InputError, match="makes both parts equal") as caught:
            run()
        assert "x[[i, j]] = x[[j, i]]" in str(caught.value)


def test_what_looks_like_a_swap() -> None:
    def moves(x: Any) -> Any:
        x[0], x[1] = x[1].copy(), x[0].copy()
        x[[1, 2]] = x[[2, 1]]
        x[3, 0, 0], x[0, 0, 0] = x[0, 0, 0], x[3, 0, 0]
        x[0] = x[1]
        x[1] = x[0]
        old = x[2]
        x[3] = old
        x[2] = old
        return x

    wanted = moves(sample())
    np.testing.assert_array_equal(np.asarray(moves(shards())), wanted)
    np.testing.assert_array_equal(np.asarray(traced(moves)), wanted)


def test_windows_are_not_written() -> None:
    def write(x: Any) -> Any:
        np.lib.stride_tricks.sliding_window_view(x, 2, 0, writeable=True)[1] = 9
        return x

    with pytest.raises(ValueError, match="read-only"):
        write(shards())
    with pytest.raises(UnsupportedError, match="writeable=True"):
        traced(write)


def test_no_integer_is_nan_or_infinite() -> None:
    for value, error in ((np.nan, ValueError), (np.inf, OverflowError)):

        def put(x: Any, value: float = value) -> Any:
            whole = x.astype(np.int32)
            whole[0] = value
            return whole

        for run in (lambda: put(sample()), lambda: put(shards()), lambda: traced(put)):
            with pytest.raises(error, match="cannot convert float"):
                run()


def test_shared_memory() -> None:
    x = shards()
    assert np.shares_memory(x, x[1:])
    assert np.may_share_memory(x[1:], x[:2])
    assert not np.shares_memory(x, x + 1)
    assert not np.may_share_memory(x[1:].copy(), x)
    with pytest.raises(UnsupportedError, match="two views"):
        np.shares_memory(x[1:], x[:2])


def test_a_traced_mask_does_not_compress() -> None:
    for select in (lambda x: np.compress(x[:, 0, 0] > 1, x, 0), lambda x: np.extract(x > 1, x)):
        assert np.shape(select(shards())) == np.shape(select(sample()))
        with pytest.raises(UnsupportedError, match="compress with a traced condition"):
            traced(select)
