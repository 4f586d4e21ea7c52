"""NumPy's operators, functions and methods of `shardc.Array`, against NumPy itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError
from shardc.launcher.operations.operation import find_operation
from tests.launcher.operations_cases import CHANGES, VALUES, samples
from tests.launcher.test_job import mpiexec

MESHES = {"4": (Mesh({"a": 4}), "a", None), "2x3": (Mesh({"a": 2, "b": 3}), "a", "b")}
SEED = 5


def arrays(name: str) -> tuple[Any, ...]:
    mesh, rows, columns = MESHES[name]
    specs = P(rows, columns), P(rows), P(rows), P(columns)
    return tuple(shardc.array(x, (mesh, s), copy=True) for x, s in zip(samples(SEED), specs, strict=True))


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def agree(found: Any, wanted: Any) -> None:
    for f, w in zip(leaves(found), leaves(wanted), strict=True):
        if isinstance(w, np.ndarray | np.generic):
            assert f.dtype == w.dtype
            np.testing.assert_allclose(np.asarray(f), w, rtol=1e-12, atol=1e-13)
        else:
            assert f == w


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", VALUES)
def test_values(case: str, mesh: str) -> None:
    agree(VALUES[case](*arrays(mesh)), VALUES[case](*samples(SEED)))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", CHANGES)
def test_changes(case: str, mesh: str) -> None:
    given, plain = arrays(mesh), samples(SEED)
    agree(CHANGES[case](*given[:2]), CHANGES[case](*plain[:2]))
    agree(given, plain)  # and so do the arguments


def test_results_stay_where_the_arguments_lie() -> None:
    x, y, _, v = arrays("4")
    for made in (x + y, np.sin(x), x * v, x[1:] - x[:-1], np.where(x > 0, x, 0.0), np.concatenate([x, y]), x.copy()):
        assert str(made.sharding) == "[{a}, {}]"
    before = x.sharding
    x[2:4] *= 3
    assert x.sharding == before
    assert str(x.T.sharding) == "[{}, {a}]"
    assert x.sum().sharding.is_replicated


def test_an_operation_is_compiled_once() -> None:
    x, y, *_ = arrays("4")
    x * 0.5 + y
    x[1:] += 0.25
    before = find_operation.cache_info().misses
    for n in range(4):
        x = x * (0.1 * n) + y
        x[1:] += n / 3
    assert find_operation.cache_info().misses == before


def test_changes_take_no_memory() -> None:
    x, y, *_ = arrays("4")
    x = x * 1
    x += y
    before = [s.data.ctypes.data for s in (x * 1).addressable_shards]
    assert before
    shards = x._shards.addresses.copy()
    x += y
    assert (x._shards.addresses == shards).all()


def test_python_asks_for_values_of_scalars_only() -> None:
    x, *_ = arrays("4")
    assert float(str(x.mean())) == x.mean().item()
    assert str(x[:2]) == str(np.asarray(x)[:2])
    assert f"{x.mean():.3f}" == f"{np.asarray(x).mean():.3f}"
    assert bool(x.sum() > 0)
    with pytest.raises(ValueError, match="truth value"):
        bool(x > 0)
    with pytest.raises(TypeError):
        float(x)


def test_errors_are_numpys() -> None:
    x, _, k, _ = arrays("4")
    with pytest.raises(ValueError, match="broadcast"):
        x + np.ones(5)
    with pytest.raises(IndexError):
        x[12]
    with pytest.raises(np.exceptions.AxisError):
        x.sum(axis=4)
    with pytest.raises(InputError, match="same_kind"):
        k += 0.5
    with pytest.raises(AttributeError):
        x.no_such_thing  # noqa: B018


def test_meshes_are_not_mixed() -> None:
    with pytest.raises(InputError, match="different meshes") as e:
        arrays("4")[0] + arrays("2x3")[0]
    assert "reshard" in str(e.value)


def test_plain_arrays_take_results() -> None:
    x, *_ = arrays("4")
    plain = np.ones((9, 6))
    plain += x
    np.testing.assert_allclose(plain, np.asarray(x) + 1)
    assert isinstance(plain, np.ndarray)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks(ranks: int, repository: Path) -> None:
    done = mpiexec(ranks, sys.executable, "-m", "tests.launcher.operations_worker", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "all agree" in done.stdout


@pytest.mark.parametrize("ranks", [2, 3])
def test_selections_on_ranks(ranks: int, repository: Path) -> None:
    """``x[mask]`` of split arrays: changes under masks, reductions, and what has no order."""
    done = mpiexec(ranks, sys.executable, "-m", "tests.launcher.selection_worker", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "all agree" in done.stdout


def test_views_are_shown_by_one_rank(repository: Path) -> None:
    done = mpiexec(3, sys.executable, "-m", "tests.launcher.unread_view", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == 3


@pytest.mark.parametrize(
    "name",
    [
        "float8_e4m3fn",
        "float8_e4m3b11fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float8_e5m2",
        "float4_e2m1fn",
        "int4",
    ],
)
@pytest.mark.parametrize("size", [4, 5], ids=["even", "uneven"])
def test_extremes_of_types_without_infinity(name: str, size: int) -> None:
    numbers = np.array([2, 1, 4, 2, 1][:size]).astype(getattr(ml_dtypes, name))
    x = shardc.array(numbers, (Mesh({"d": 4}), P("d")))
    for function in (np.max, np.min, np.argmax, np.argmin, np.ptp, np.maximum.accumulate):
        np.testing.assert_array_equal(np.asarray(function(x)), function(numbers), err_msg=function.__name__)
    if name.startswith("float8"):
        assert float(np.nanmax(x)) == 4
        assert int(np.nanargmax(x)) == 2


def test_the_square_of_bools_and_sums_of_another_kind() -> None:
    flags, halves = np.array([True, False, True, True]), np.ones(8) * 1.5
    x, y = (shardc.array(a, (Mesh({"d": 4}), P("d"))) for a in (flags, halves))
    for exponent in (1, 2, 3):
        assert (x**exponent).dtype == (flags**exponent).dtype
    traced = shardc.trace(lambda a: a**2, flags).compile()(flags)
    assert traced.dtype == np.int8
    assert int(np.sum(y, dtype=np.int32)) == np.sum(halves, dtype=np.int32) == 8


NUMBERS = {
    "sum": lambda x: np.sum(x, axis=0),
    "max": lambda x: np.max(x, axis=-1),
    "any": lambda x: np.any(x, axis=0),
    "argsort": np.argsort,
    "argmin": lambda x: np.argmin(x, axis=0),
    "cumsum": lambda x: np.cumsum(x, axis=-1),
    "repeat": lambda x: np.repeat(x, 3, axis=0),
    "take": lambda x: np.take(x, 0, axis=-1),
    "equals a text": lambda x: np.asarray(x == "a text"),
    "differs from a text": lambda x: np.asarray(x != "a text"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_has_one_axis(case: str) -> None:
    number = np.asarray(3, np.float32)
    agree(NUMBERS[case](shardc.array(number, (MESHES["4"][0], P()))), NUMBERS[case](number))


NO_AXIS = {
    "sort": lambda x: np.sort(x, axis=0),
    "partition": lambda x: np.partition(x, 0),
    "delete": lambda x: np.delete(x, 0, axis=0),
    "insert": lambda x: np.insert(x, 0, 1, axis=0),
    "cumsum": lambda x: np.cumsum(x, axis=1),
}


@pytest.mark.parametrize("case", NO_AXIS)
def test_a_number_has_no_axis_where_numpy_says_so(case: str) -> None:
    number = np.asarray(3, np.float32)
    for x in (number, shardc.array(number, (MESHES["4"][0], P()))):
        with pytest.raises(np.exceptions.AxisError):
            NO_AXIS[case](x)
