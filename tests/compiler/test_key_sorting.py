"""Sorts by keys against NumPy's and the evaluator: every type of key, several keys, runs, special floats, threads."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.buffers.in_place import in_place_pairs
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.sort_keys import KEY_TYPES, sort_keys
from shardc.hlo.ir.types import DTYPES, array_shape
from shardc.hlo.text.reader import read_hlo
from shardc.native.llvm.target import named_target
from shardc.stages.stages import Program
from tests.compiler import kernel_runner
from tests.compiler.kernel_runner import Array, check, compile_and_run, expected, instruction

FLOATS = ("f16", "bf16", "f32", "f64")


def canonical(b: Builder, x: Instruction) -> Instruction:
    """As `jax.lax.sort` has it."""
    if not x.shape.dtype.is_float:
        return x
    zero, nan = b.constant(0.0, x.shape.dtype), b.constant(np.nan, x.shape.dtype)
    found = b.add("select", b.add("compare", x, zero, direction="EQ"), zero, x)
    return b.add("select", b.add("compare", x, x, direction="NE"), nan, found)


def before(*dtypes: str, keys: tuple[int, ...] = (0,), direction: str = "LT", equal: bool = True) -> Computation:
    b = Builder("before")
    parameters = [b.parameter(array_shape(t)) for t in dtypes for _ in range(2)]
    result: Instruction | None = None
    for key in reversed(keys):
        x, y = (canonical(b, p) if equal else p for p in parameters[2 * key : 2 * key + 2])
        how = {"type": "TOTALORDER"} if x.shape.dtype.is_float else {}
        less = b.add("compare", x, y, direction=direction, **how)
        if result is not None:
            same = b.add("compare", x, y, direction="EQ", **how)
            less = b.add("or", less, b.add("and", same, result))
        result = less
    assert result is not None
    return b.build(result)


def elements(dtype: str, count: int, rng: np.random.Generator) -> Array:
    """All bits, and among them many that are special."""
    t = DTYPES[dtype]
    if t.kind == "pred":
        return rng.integers(0, 2, count).astype(np.bool_)
    raw = rng.integers(0, 256, count * t.nbytes).astype(np.uint8)
    found = np.frombuffer(raw.tobytes(), t.numpy).copy()
    if t.is_float:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0]).astype(t.numpy)
        found = np.where(rng.random(count) < 0.5, special[rng.integers(0, 8, count)], found)
    return found


def bits(x: Array) -> Array:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind != "c" else x


def same_bits(i: Instruction, given: list[Array]) -> None:
    for got, wanted in zip(compile_and_run(i, given), expected(i, given), strict=True):
        np.testing.assert_array_equal(bits(got), bits(np.asarray(wanted)))


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
def test_one_array(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for direction in ("LT", "GT"):
        for equal in (True, False):
            comparator = before(dtype, direction=direction, equal=equal)
            assert sort_keys(comparator) is not None
            i = instruction("sort", array_shape(dtype, 700), dimensions=(0,), is_stable=True, to_apply=comparator)
            same_bits(i, [elements(dtype, 700, rng)])


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "s32", "u64"])
def test_for_processors_without_avx2(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by bytes there."""
    monkeypatch.setattr(kernel_runner, "FOREIGN", named_target("x86-64", "linux"))
    monkeypatch.setattr(kernel_runner, "RUNS", kernel_runner.runs_here(named_target("x86-64", "linux")))
    i = instruction("sort", array_shape(dtype, 5000), dimensions=(0,), is_stable=True, to_apply=before(dtype))
    same_bits(i, [elements(dtype, 5000, np.random.default_rng(0))])


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
def test_with_others_behind(dtype: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [array_shape(dtype, 3, 400), array_shape("c64", 3, 400), array_shape("s32", 3, 400)]
    i = instruction("sort", *shapes, dimensions=(1,), is_stable=True, to_apply=before(dtype, "c64", "s32"))
    given = [elements(dtype, 1200, rng), rng.standard_normal(1200).astype(np.complex64), np.arange(1200, dtype="i4")]
    same_bits(i, [x.reshape(3, 400) for x in given])


@pytest.mark.parametrize("dtype", ["s8", "f16", "f32", "f64", "s64"])
@pytest.mark.parametrize("places", ["s16", "s32", "s64", "f32"])
def test_places_behind(dtype: str, places: str) -> None:
    """What counts along rows is written without being read; what counts across them is not taken for it."""
    rng = np.random.default_rng(9)
    for across in (0, 1):
        b = Builder("program")
        x = b.parameter(array_shape(dtype, 3, 400))
        numbers = b.add("iota", shape=array_shape(places, 3, 400), iota_dimension=across)
        how = {"dimensions": (1,), "is_stable": True, "to_apply": before(dtype, places)}
        same = np.broadcast_to(np.arange(3)[:, None] if across == 0 else np.arange(400), (3, 400))
        given = [elements(dtype, 1200, rng).reshape(3, 400), np.ascontiguousarray(same, DTYPES[places].numpy)]
        same_bits(b.add("sort", x, numbers, **how), given)


def line(dtype: str, count: int, *, direction: str = "LT", equal: bool = True) -> Instruction:
    comparator = before(dtype, direction=direction, equal=equal)
    return instruction("sort", array_shape(dtype, count), dimensions=(0,), is_stable=True, to_apply=comparator)


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
def test_over_the_operand(dtype: str) -> None:
    """A line whose result takes its memory, unsorted and as two runs: equal zeros and NaNs come in their order."""
    rng = np.random.default_rng(11)
    for direction in ("LT", "GT"):
        for equal in (True, False):
            i = line(dtype, 1024, direction=direction, equal=equal)
            assert in_place_pairs(i) == ((0, 0),)
            given = elements(dtype, 1024, rng)
            halves = np.split(given, [300])
            runs = [expected(line(dtype, len(x), direction=direction, equal=equal), [x])[0] for x in halves]
            for x in (given, np.concatenate(runs)):
                (got,) = compile_and_run(i, [x], in_place=0)
                np.testing.assert_array_equal(bits(got), bits(np.asarray(expected(i, [x])[0])))


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("runs", [1, 2, 30])
def test_over_the_operand_on_several_threads(dtype: str, runs: int) -> None:
    """Against NumPy, which takes zeros of both signs, and all NaNs, for equal."""
    rng = np.random.default_rng(runs)
    x = elements(dtype, 70_000, rng)
    x = np.concatenate([part[np.argsort(part, kind="stable")] for part in np.array_split(x, runs)]) if runs > 1 else x
    (got,) = compile_and_run(line(dtype, len(x)), [x], in_place=0)
    np.testing.assert_array_equal(bits(got), bits(x[np.argsort(x, kind="stable")]))


def test_what_is_not_sorted_over_the_operand() -> None:
    """Short lines, rows, and lines with others behind them: their kernels read operands while they write."""
    two = [array_shape("f32", 2048), array_shape("s32", 2048)]
    rows = instruction("sort", array_shape("f32", 2, 2048), dimensions=(1,), is_stable=True, to_apply=before("f32"))
    both = instruction("sort", *two, dimensions=(0,), is_stable=True, to_apply=before("f32", "s32"))
    for i in (line("f32", 1023), rows, both):
        assert in_place_pairs(i) == ()


@pytest.mark.parametrize("dtypes", [("s8", "f64"), ("f64", "s8"), ("u8", "f32", "s64"), ("f64", "f64", "pred")])
def test_several_keys(dtypes: tuple[str, ...]) -> None:
    rng = np.random.default_rng(2)
    every = tuple(range(len(dtypes)))
    for keys in (every, every[::-1], every[:2]):
        shapes = [array_shape(t, 700) for t in dtypes]
        i = instruction("sort", *shapes, dimensions=(0,), is_stable=True, to_apply=before(*dtypes, keys=keys))
        given = [elements(t, 700, rng) for t in dtypes]
        given[0] = given[0][rng.integers(0, 5, 700)]
        same_bits(i, given)


@pytest.mark.parametrize("dtype", ["s32", "f64"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 40])
def test_runs(dtype: str, count: int) -> None:
    """Few are merged, of any lengths, also on several threads."""
    rng = np.random.default_rng(count)
    for length in (200, 200_001):
        x = (rng.standard_normal(length) * 50).round().astype(DTYPES[dtype].numpy)
        cuts = np.sort(rng.integers(0, length, count - 1))
        given = np.concatenate([np.sort(part) for part in np.split(x, cuts)])
        places = np.arange(length, dtype=np.int32)
        one = instruction("sort", array_shape(dtype, length), dimensions=(0,), to_apply=before(dtype))
        np.testing.assert_array_equal(compile_and_run(one, [given])[0], np.sort(given))
        shapes = (array_shape(dtype, length), array_shape("s32", length))
        two = instruction("sort", *shapes, dimensions=(0,), is_stable=True, to_apply=before(dtype, "s32"))
        order = np.argsort(given, kind="stable")
        got = compile_and_run(two, [given, places])
        np.testing.assert_array_equal(got[1], order)
        np.testing.assert_array_equal(got[0], given[order])


@pytest.mark.parametrize("dtype", ["f32", "s64"])
def test_on_several_threads(dtype: str) -> None:
    """Long rows, few different elements, and all alike."""
    rng = np.random.default_rng(3)
    for values in (1, 7, 1 << 40):
        x = rng.integers(-values // 2, values // 2 + 1, (2, 150_000)).astype(DTYPES[dtype].numpy)
        shapes = (array_shape(dtype, *x.shape), array_shape("s32", *x.shape))
        i = instruction("sort", *shapes, dimensions=(1,), is_stable=True, to_apply=before(dtype, "s32", direction="GT"))
        places = np.broadcast_to(np.arange(150_000, dtype=np.int32), x.shape)
        got = compile_and_run(i, [x, np.ascontiguousarray(places)])
        order = np.argsort(-x, axis=1, kind="stable")
        np.testing.assert_array_equal(got[1], order)
        np.testing.assert_array_equal(got[0], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
def test_short_rows(dtype: str) -> None:
    """Also in columns, and with others behind."""
    rng = np.random.default_rng(6)
    for length in (1, 2, 7, 16, 33, 96):
        for dims, dim in (((length, 5), 0), ((4, length), 1)):
            shapes = [array_shape(dtype, *dims), array_shape("c64", *dims), array_shape("s32", *dims)]
            less = before(dtype, "c64", "s32", direction="GT")
            i = instruction("sort", *shapes, dimensions=(dim,), is_stable=True, to_apply=less)
            count = length * dims[1 - dim]
            given = [elements(dtype, count, rng), rng.standard_normal(count).astype("c8"), np.arange(count, dtype="i4")]
            same_bits(i, [x.reshape(dims) for x in given])


@pytest.mark.parametrize("dtype", sorted(KEY_TYPES))
def test_rows_side_by_side(dtype: str) -> None:
    """In vector lanes: whole squares and what is left of rows, neighbours that go over an edge, equals in order."""
    rng = np.random.default_rng(8)
    for dims, dim in (((35, 130), 1), ((3, 37, 40), 1), ((2, 33, 3), 1), ((5, 64), 1), ((20, 257), 1), ((130, 9), 0)):
        x = elements(dtype, int(np.prod(dims)), rng).reshape(dims)
        places = np.broadcast_to(np.arange(dims[dim], dtype="i4").reshape(-1, *(1,) * (len(dims) - dim - 1)), dims)
        plain = (rng.permutation(x.size) % 251 + 1).astype(x.dtype).reshape(dims)
        for given in ([x], [plain], [x, np.ascontiguousarray(places)]):
            kinds = (dtype, "s32")[: len(given)]
            for direction in ("LT", "GT"):
                less = before(*kinds, direction=direction)
                shapes = [array_shape(t, *dims) for t in kinds]
                i = instruction("sort", *shapes, dimensions=(dim,), is_stable=True, to_apply=less)
                same_bits(i, given)


def test_columns() -> None:
    rng = np.random.default_rng(4)
    for dims in ((300, 3), (100, 40)):
        x = elements("f32", dims[0] * dims[1], rng).reshape(dims)
        i = instruction("sort", array_shape("f32", *dims), dimensions=(0,), is_stable=True, to_apply=before("f32"))
        same_bits(i, [x])


def test_what_is_no_order_of_numbers_is_merged() -> None:
    b = Builder("by_remainder")
    x, y = b.parameter(array_shape("s32")), b.parameter(array_shape("s32"))
    seven = b.constant(7, "s32")
    less = b.build(b.add("compare", b.add("remainder", x, seven), b.add("remainder", y, seven), direction="LT"))
    assert sort_keys(less) is None
    i = instruction("sort", array_shape("s32", 300), dimensions=(0,), is_stable=True, to_apply=less)
    check(i, [np.random.default_rng(5).integers(0, 1000, 300).astype(np.int32)])


def test_a_sort_of_places_is_another_kernel_than_one_of_such_numbers() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 30, (2, 4096)).astype(np.uint32)
    text = """HloModule twice
less {
  a = u32[] parameter(0)
  b = u32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT lt = pred[] compare(a, b), direction=LT
}
ENTRY main {
  first = u32[4096] parameter(0)
  second = u32[4096] parameter(1)
  places = s32[4096] iota(), iota_dimension=0
  once = (u32[4096], s32[4096]) sort(first, places), dimensions={0}, is_stable=true, to_apply=less
  order = s32[4096] get-tuple-element(once), index=1
  twice = (u32[4096], s32[4096]) sort(second, order), dimensions={0}, is_stable=true, to_apply=less
  ROOT result = s32[4096] get-tuple-element(twice), index=1
}
"""
    (got,) = Program(read_hlo(text)).partition().compile().run(list(keys))
    order = np.argsort(keys[0], kind="stable")
    np.testing.assert_array_equal(np.asarray(got), order[np.argsort(keys[1], kind="stable")])
