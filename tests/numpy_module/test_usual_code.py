"""What scripts of NumPy write every day, on arrays and on views: the same values, shapes and types as NumPy's."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import shardc
import shardc.numpy as snp
from shardc import Mesh, P
from shardc.hlo.errors import InputError
from tests.launcher.test_job import mpiexec

VALUES = numpy.arange(18 * 7, dtype=float).reshape(18, 7) - 40
MESH = Mesh({"d": 4})

#: Of an array, and of NumPy's module or ours.
CODE: dict[str, Callable[[Any, Any], Any]] = {
    "a row converted": lambda x, np: x[0].astype(np.float32),
    "rows converted": lambda x, np: x[1:5].astype("f4"),
    "the transpose converted": lambda x, np: x.T.astype(int),
    "one dimension converted": lambda x, np: x.ravel().astype(bool),
    "sum in a type": lambda x, np: x.sum(dtype=np.float32),
    "np.sum in a type": lambda x, np: np.sum(x > 0, dtype=np.int32),
    "mean in a type": lambda x, np: x.mean(dtype=np.float64),
    "cumsum in a type": lambda x, np: x.cumsum(dtype=np.float64),
    "add in a type": lambda x, np: np.add(x, 1, dtype=np.float64),
    "full_like in a type": lambda x, np: np.full_like(x, 3, dtype=np.int8),
    "zeros_like in a type": lambda x, np: np.zeros_like(x, dtype=np.int32),
    "astype of the module": lambda x, np: np.astype(x, np.float32),
    "bits": lambda x, np: x.view(np.int64),
    "item by number": lambda x, np: x.item(3),
    "item by index": lambda x, np: x.item(1, 2),
    "flat": lambda x, np: list(x.flat),
    "bytes": lambda x, np: numpy.frombuffer(x.tobytes()),
    "indices": lambda x, np: np.indices((64, 66)),
    "indices doubled": lambda x, np: np.indices((64, 66)) * 2,
    "indices in a type": lambda x, np: np.indices((5, 66), dtype=np.float32)[1],
    "indices summed": lambda x, np: np.indices((64, 66)).sum(0),
    "open indices": lambda x, np: np.indices((64, 66), sparse=True)[1],
    "linspace of arrays": lambda x, np: np.linspace([0, 1], [2, 3], 80),
    "largest row sum": lambda x, np: np.linalg.norm(x, np.inf),
    "smallest row sum": lambda x, np: np.linalg.norm(x, ord=-np.inf),
    "largest entries": lambda x, np: np.linalg.norm(x, np.inf, axis=0),
    "infinity as a number": lambda x, np: np.where(x > 0, x, np.inf).min(),
    "a number rounded": lambda x, np: round(float(x.sum()) / 7, 3),
    "pads by a dict": lambda x, np: np.pad(x, {0: (1, 2)}),
    "linspace with its step": lambda x, np: np.linspace([0, 1], [2, 3], 80, retstep=True)[1],
}


@pytest.mark.parametrize("name", CODE)
def test_is_as_in_numpy(name: str) -> None:
    with snp.use_mesh(MESH):
        found = numpy.asarray(CODE[name](shardc.array(VALUES, (MESH, P("d"))), snp))
    expected = numpy.asarray(CODE[name](VALUES, numpy))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    numpy.testing.assert_array_equal(found, expected)


def test_traced_indices_are_one_array_too() -> None:
    def positions(x: Any) -> Any:
        return snp.indices((18, 7)).sum(0) * x

    found = shardc.trace(positions, VALUES, mesh=MESH, in_shardings=(P("d"),)).compile()(VALUES)
    numpy.testing.assert_array_equal(numpy.asarray(found), numpy.indices((18, 7)).sum(0) * VALUES)


@pytest.mark.parametrize(
    ("draw", "text"),
    [
        (lambda r: r.choice(9, 4, axis=1), "take no axis="),
        (lambda r: r.integers(numpy.arange(1, 4)), "bounds of integers"),
        (lambda r: r.poisson(3), "have no poisson, only random, uniform"),
        (lambda r: r.poison, "no attribute 'poison'"),
    ],
)
def test_draws_that_there_are_not_are_told(draw: Callable[[Any], Any], text: str) -> None:
    with pytest.raises((shardc.ShardcError, AttributeError), match=text):
        draw(snp.random.default_rng(0))


def test_single_numbers_round() -> None:
    total = shardc.array(numpy.float64(2.0 / 3), None)
    assert round(total, 3) == 0.667 and round(total) == 1


#: Changes in place: of an array and of a view of it.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "subtract under a mask": lambda x: operator.setitem(x, x > 5, x[x > 5] - 7),
    "values under a mask": lambda x: operator.setitem(x, x > 5, x[x > 5] * 2 + 1),
    "place": lambda x: numpy.place(x, x > 5, [1.0, 2.0]),
    "rows under a mask": lambda x: operator.setitem(x, x[:, 0] > 3, x[x[:, 0] > 3] + 1),
    "a plain mask": lambda x: operator.setitem(x, numpy.arange(18) % 2 == 0, numpy.ones((9, 7))),
    "under a mask of a view": lambda x: operator.setitem(x[1:-1], x[1:-1] > 6, x[1:-1][x[1:-1] > 6] + 1),
    "some rows": lambda x: operator.setitem(x, [0, 2], x[[0, 2]] + 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_in_place(name: str) -> None:
    found, expected = shardc.array(VALUES.copy(), (MESH, P("d"))), VALUES.copy()
    for x in (found, expected):
        CHANGES[name](x)
    numpy.testing.assert_array_equal(numpy.asarray(found), expected)


@pytest.mark.parametrize("reads", [0, 1, 2])
@pytest.mark.parametrize("part", [lambda v: v[:, :1], lambda v: v.T, lambda v: v[1:], lambda v: v.T[0], lambda v: v[2]])
def test_views_of_views_are_views(part: Callable[[Any], Any], reads: int) -> None:
    """Also of one that was read, of which a copy is at hand: its own view is a view of the array."""
    seen = []
    for x in (shardc.array(VALUES.copy(), (MESH, P("d"))), VALUES.copy()):
        inside = x[1:-1]
        for _ in range(reads):
            inside.sum()
        inner = part(inside)
        inner += 1
        inside *= 2
        inner[0] = 5
        seen.append([numpy.array(v) for v in (x, inside, inner)])
    for found, expected in zip(*seen, strict=True):
        numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("ranks", [2, 3])
def test_usual_code_on_ranks(ranks: int, repository: Path, tmp_path: Path) -> None:
    """The same code on ranks, and the same random numbers as in one process."""
    from tests.numpy_module.usual_code_worker import draws

    numpy.savez(tmp_path / "drawn.npz", *draws())
    worker = "tests.numpy_module.usual_code_worker"
    done = mpiexec(ranks, sys.executable, "-m", worker, str(tmp_path / "drawn.npz"), cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all agree") == ranks


@pytest.mark.parametrize("dtype", ["u1", "u8", "i4", "i8"])
@pytest.mark.parametrize("compare", [operator.gt, operator.le, operator.eq, operator.ne])
def test_integers_beyond_the_type_compare_exactly(compare: Callable[[Any, Any], Any], dtype: str) -> None:
    """As numbers outside of traced functions, in them, and as their arguments."""
    plain = numpy.arange(70).astype(dtype)
    x = shardc.array(plain, (MESH, P("d")))
    for number in (-1, -200, 300, 2**40, -(2**63), 2**64 - 1, -(2**70)):
        for run in (compare, lambda a, k: compare(k, a)):
            expected = run(plain, number)
            found = [run(x, number), snp.jit(lambda a, run=run, k=number: run(a, k))(x)]
            if -(2**63) <= number < 2**63:
                found.append(snp.jit(run)(x, number))
            for f in found:
                numpy.testing.assert_array_equal(numpy.asarray(f), expected, err_msg=str(number))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x + 300,
        lambda x: -1 + x,
        lambda x: numpy.maximum(x, -1),
        lambda x: operator.setitem(x, 3, 300),
        lambda x: operator.setitem(x, slice(2), [1, -1]),
    ],
)
def test_integers_must_fit_in_arithmetic(change: Callable[[Any], Any]) -> None:
    for x in (numpy.arange(70, dtype=numpy.uint8), shardc.array(numpy.arange(70, dtype=numpy.uint8), (MESH, P("d")))):
        with pytest.raises(OverflowError, match="out of bounds for uint8"):
            change(x)


def test_limits_may_be_beyond_the_type() -> None:
    plain = numpy.arange(-4, 60, dtype=numpy.int8)
    x = shardc.array(plain, (MESH, P("d")))
    for low, high in ((0, 300), (-300, 9), (-300, 300)):
        found = numpy.clip(x, low, high)
        numpy.testing.assert_array_equal(numpy.asarray(found), numpy.clip(plain, low, high))
        assert found.dtype == numpy.int8


#: A view that is written whole from another part of the same array; of a square matrix.
OVERLAPS: dict[str, Callable[[Any, Any], Any]] = {
    "rows down": lambda x, np: operator.setitem(v := x[1:], slice(None), x[:-1]) or (x, v),
    "reversed": lambda x, np: operator.setitem(v := x[::-1], ..., x) or (x, v),
    "turned": lambda x, np: operator.setitem(v := x.T, ..., x) or (x, v),
    "flipped": lambda x, np: operator.setitem(v := np.flip(x), slice(None), x) or (x * 1, v * 1),
    "copied": lambda x, np: np.copyto(v := x[:, ::-1], x) or (x, v),
    "of a view": lambda x, np: operator.setitem(v := x[::-1], ..., (w := v[::-1])) or (x, v, w),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_views_that_are_written_from_their_array(name: str) -> None:
    """Traced and not: the view reads what was written, not the other part once more."""
    square = VALUES[:7].copy()
    expected = OVERLAPS[name](square.copy(), numpy)
    outside = OVERLAPS[name](shardc.array(square.copy(), (MESH, P("d"))), snp)
    traced = snp.jit(lambda x: OVERLAPS[name](x, numpy))(shardc.array(square.copy(), (MESH, P("d"))))
    for found in (outside, traced):
        for f, e in zip(found, expected, strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(f), e)


@pytest.mark.parametrize(
    "assign",
    [
        lambda x, y: operator.setitem(y, 0, x[1:4, :3]),
        lambda x, y: operator.setitem(y, (slice(None), 0), x[:, :1]),
        lambda x, y: operator.setitem(y, (slice(3, 4), 0), numpy.arange(0.0)),
        lambda x, y: operator.setitem(y, 0, numpy.ones((2, 3))),
    ],
)
def test_values_of_another_shape_are_not_assigned(assign: Callable[[Any, Any], Any]) -> None:
    def traced(x: Any) -> Any:
        y = numpy.zeros((18, 3), like=x)
        assign(x, y)
        return y

    x = shardc.array(VALUES.copy(), (MESH, P("d")))
    for run in (
        lambda: assign(VALUES, numpy.zeros((18, 3))),
        lambda: assign(x, shardc.array(numpy.zeros((18, 3)), (MESH, P("d")))),
        lambda: snp.jit(traced)(x),
    ):
        with pytest.raises(ValueError, match="could not broadcast"):
            run()


@pytest.mark.parametrize(
    "read",
    [
        lambda x, np: x[numpy.array([18])],
        lambda x, np: x[:, numpy.array([0, -8])],
        lambda x, np: np.take(x, numpy.array([18]), axis=0),
        lambda x, np: x.take(numpy.array([18 * 7])),
        lambda x, np: operator.setitem(x, numpy.array([-19]), 0),
        lambda x, np: np.insert(x, 19, 1, axis=0),
    ],
)
def test_plain_positions_must_be_inside(read: Callable[[Any, Any], Any]) -> None:
    for x, np in ((VALUES.copy(), numpy), (shardc.array(VALUES.copy(), (MESH, P("d"))), snp)):
        with pytest.raises(IndexError, match="out of bounds"):
            read(x, np)


def test_astype_takes_options_of_numpy() -> None:
    x = shardc.array(VALUES, (MESH, P("d")))
    assert x.astype("float64", copy=False) is x and x.astype("float64") is not x
    assert x[1:].astype("f4", copy=False).dtype == numpy.float32
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        x.astype(numpy.int8, casting="safe")


#: What is a view in NumPy and what a copy; of a square matrix, which is changed afterwards.
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "ravel of a column": lambda x, np: operator.setitem(x[:, 0].ravel(), slice(None), -1),
    "ravel of steps": lambda x, np: operator.setitem(np.ravel(x[:, ::2]), slice(None), -1),
    "ravel of all": lambda x, np: operator.setitem(x.ravel(), slice(3), -1),
    "ravel of rows": lambda x, np: operator.setitem(x[2:5].ravel(), slice(3), -1),
    "ravel of a transpose": lambda x, np: operator.setitem(x.T.ravel(), slice(3), -1),
    "ravel of a transpose in its order": lambda x, np: operator.setitem(x.T.ravel("F"), slice(3), -1),
    "ravel in memory's order": lambda x, np: operator.setitem(x.T.ravel("K"), slice(3), -1),
    "diagonal": lambda x, np: x.diagonal(1),
    "broadcast": lambda x, np: np.broadcast_to(x[0], (3, 7)),
    "windows": lambda x, np: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0),
    "asarray": lambda x, np: operator.setitem(np.asarray(x), 0, -1),
    "NaN in place": lambda x, np: np.nan_to_num(np.sqrt(x, out=x), copy=False, nan=-1),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_a_view_and_what_a_copy(name: str) -> None:
    """Traced and not: the array afterwards, and what the view shows."""

    def run(x: Any, np: Any) -> Any:
        seen = VIEWS[name](x, np)
        x *= 5
        return x, x[0] if seen is None else seen * 1

    square = VALUES[:7].copy()
    expected = run(square.copy(), numpy)
    outside = run(shardc.array(square.copy(), (MESH, P("d"))), snp)
    traced = snp.jit(lambda x: run(x, snp))(shardc.array(square.copy(), (MESH, P("d"))))
    for found in (outside, traced):
        for f, e in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(numpy.asarray(f), e)


def test_views_that_are_read_only() -> None:
    x = shardc.array(VALUES[:7].copy(), (MESH, P("d")))
    for view in (x.diagonal(), snp.broadcast_to(x[0], (3, 7)), snp.lib.stride_tricks.sliding_window_view(x, 2, axis=0)):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda x, np: np.linalg.solve(np.eye(18), np.ones(5)),
    "lexsort": lambda x, np: np.lexsort((x[0], np.ones(3))),
    "resize": lambda x, np: np.resize(x, (-1,)),
    "einsum": lambda x, np: np.einsum("ij->k", x),
    "convolve": lambda x, np: np.convolve(x, x),
    "vander": lambda x, np: np.vander(x),
    "array_split": lambda x, np: np.array_split(x, 0),
    "diff": lambda x, np: np.diff(x, n=-1),
    "digitize": lambda x, np: np.digitize(x, [3, 1, 2]),
    "fill_diagonal": lambda x, np: np.fill_diagonal(x[0], 1),
    "sort": lambda x, np: np.sort(x, kind="foo"),
    "diagonal": lambda x, np: np.diagonal(x, axis1=0, axis2=-2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_as_by_numpy(name: str) -> None:
    for x, np in ((VALUES.copy(), numpy), (shardc.array(VALUES.copy(), (MESH, P("d"))), snp)):
        with pytest.raises(ValueError):
            WRONG[name](x, np)


def test_nothing_equals_none_or_a_text() -> None:
    x = shardc.array(VALUES, (MESH, P("d")))
    assert not (x == None).any() and (x != "a").all()  # noqa: E711


def test_traced_functions_call_one_another() -> None:
    inner = snp.jit(lambda x, by: x * by, static_argnames="by", out_shardings=P(None, "d"))
    outer = snp.jit(lambda x: inner(x, by=3) + 1)
    x = shardc.array(VALUES, (MESH, P("d")))
    numpy.testing.assert_array_equal(numpy.asarray(outer(x)), VALUES * 3 + 1)
    numpy.testing.assert_array_equal(numpy.asarray(inner(x, by=2)), VALUES * 2)


def test_files_of_other_values(tmp_path: Path) -> None:
    snp.save(tmp_path / "list.npy", [1.0, 2.0])
    numpy.testing.assert_array_equal(numpy.load(tmp_path / "list.npy"), [1, 2])
    assert snp.load(tmp_path / "list.npy", mmap_mode="r").shape == (2,)
    with pytest.raises(InputError, match="no element type bfloat16"):
        snp.save(tmp_path / "b.npy", shardc.array(VALUES, (MESH, P("d"))).astype("bfloat16"))
    with pytest.raises(shardc.ShardcError, match=r"np\.save of a traced value"):
        snp.jit(lambda x: snp.save(tmp_path / "t.npy", x))(VALUES)
    with pytest.raises(InputError, match="mmap_mode"):
        snp.load(tmp_path / "list.npy", mmap_mode="r+")
