"""Data movement, reductions, products and fusions against the evaluator, over random shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import check, compile_and_run, fusion, instruction, random

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True)
DIM = st.sampled_from([0, 1, 2, 3, 5, 8, 16, 17, 33, 64])
DIMS = st.lists(DIM, min_size=1, max_size=4).map(tuple)
MOVED = st.sampled_from(["f32", "pred", "c64", "bf16", "s64", "s4"])


@SETTINGS
@given(DIMS, MOVED, st.randoms(use_true_random=False))
def test_transpose_reverse_broadcast(dims: tuple[int, ...], dtype: str, rng: np.random.Generator) -> None:
    x = random(f(dtype, *dims))
    order = list(range(len(dims)))
    rng.shuffle(order)
    check(instruction("transpose", f(dtype, *dims), dimensions=tuple(order)), [x])
    check(instruction("reverse", f(dtype, *dims), dimensions=tuple(sorted(order[:2]))), [x])
    wide = (3, *dims, 5)
    i = instruction("broadcast", f(dtype, *dims), shape=f(dtype, *wide), dimensions=tuple(range(1, len(dims) + 1)))
    check(i, [x])
    check(instruction("reshape", f(dtype, *dims), shape=f(dtype, x.size)), [x])


@SETTINGS
@given(
    st.lists(st.tuples(DIM, st.integers(-2, 3), st.integers(-2, 3), st.integers(0, 2)), min_size=1, max_size=3), MOVED
)
def test_pad(rows: list[tuple[int, int, int, int]], dtype: str) -> None:
    rows = [(n, lo, hi, k) for n, lo, hi, k in rows if max(n - 1, 0) * (k + 1) + min(n, 1) + lo + hi >= 0]
    dims = tuple(r[0] for r in rows)
    i = instruction("pad", f(dtype, *dims), f(dtype), padding=tuple(r[1:] for r in rows))
    check(i, [random(f(dtype, *dims)), random(f(dtype), 1)])


@SETTINGS
@given(DIMS, MOVED, st.data())
def test_slice_and_concatenate(dims: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    spans = []
    for n in dims:
        start = data.draw(st.integers(0, n))
        spans.append((start, data.draw(st.integers(start, n)), data.draw(st.integers(1, 3))))
    x = random(f(dtype, *dims))
    check(instruction("slice", f(dtype, *dims), slice=tuple(spans)), [x])
    d = data.draw(st.integers(0, len(dims) - 1))
    shapes = [f(dtype, *dims[:d], n, *dims[d + 1 :]) for n in data.draw(st.lists(DIM, min_size=1, max_size=4))]
    check(instruction("concatenate", *shapes, dimensions=(d,)), [random(s, k) for k, s in enumerate(shapes)])


@pytest.mark.parametrize("dims", [(5,), (3, 40), (4, 1, 9)])
def test_iota(dims: tuple[int, ...]) -> None:
    for dtype in ("s32", "f32", "u8", "bf16", "c64", "s64", "f64"):
        for d in range(len(dims)):
            check(instruction("iota", shape=f(dtype, *dims), iota_dimension=d), [])


def test_gather() -> None:
    table, indices = random(f("f32", 20, 6, 9)), np.array([[3, 1], [19, 5], [-4, 2], [60, 60]], np.int32)
    for sizes, offsets in (((1, 1, 9), (1,)), ((1, 1, 5), (1,)), ((1, 1, 9), (0,))):
        i = instruction(
            "gather", f("f32", 20, 6, 9), f("s32", 4, 2), offset_dims=offsets, collapsed_slice_dims=(0, 1),
            start_index_map=(0, 1), index_vector_dim=1, slice_sizes=sizes,
        )  # fmt: skip
        check(i, [table, indices])
    i = instruction(
        "gather", f("f32", 20, 6, 9), f("s32", 2, 4), offset_dims=(1, 2, 3), collapsed_slice_dims=(),
        start_index_map=(2, 0), index_vector_dim=0, slice_sizes=(4, 2, 3),
    )  # fmt: skip
    check(i, [table, indices.T.copy()])
    i = instruction(
        "gather", f("f32", 4, 30), f("u8", 4, 7), offset_dims=(), collapsed_slice_dims=(1,), start_index_map=(1,),
        operand_batching_dims=(0,), start_indices_batching_dims=(0,), index_vector_dim=2, slice_sizes=(1, 1),
    )  # fmt: skip
    check(i, [random(f("f32", 4, 30)), random(f("u8", 4, 7), low=0, high=40)])


def test_dynamic_slice() -> None:
    for starts in ((3, 50), (-3, 5), (0, 0)):
        i = instruction("dynamic-slice", f("f32", 10, 30), f("s32"), f("s32"), dynamic_slice_sizes=(4, 9))
        check(i, [random(f("f32", 10, 30)), *(np.int32(s) for s in starts)])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(DIMS, st.sampled_from(["f32", "f64", "bf16", "s32", "u8", "c64", "pred"]), st.data())
def test_reduce(dims: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(dims) - 1), min_size=1))
    opcode = data.draw(st.sampled_from(["add", "maximum", "multiply"] if dtype != "c64" else ["add"]))
    opcode = "or" if dtype == "pred" else opcode
    x = random(f(dtype, *dims))
    if opcode == "multiply" and dtype in ("f32", "f64", "bf16"):
        x = (1 + x.astype(np.float32) / 64).astype(x.dtype)
    i = instruction(
        "reduce",
        f(dtype, *dims),
        f(dtype),
        dimensions=tuple(sorted(chosen)),
        to_apply=binary_computation(opcode, dtype),
    )
    check(i, [x, random(f(dtype), 1)], ulp=0 if opcode == "maximum" else 32)


def argmax(dtype: str) -> Computation:
    b = Builder("argmax")
    v, k, w, m = (b.parameter(f(t)) for t in (dtype, "s32", dtype, "s32"))
    more = b.add("compare", v, w, direction="GT")
    tie = b.add("and", b.add("compare", v, w, direction="EQ"), b.add("compare", k, m, direction="LT"))
    first = b.add("or", more, tie)
    return b.build(b.add("tuple", b.add("select", first, v, w), b.add("select", first, k, m)))


@SETTINGS
@given(DIM.filter(bool), DIM.filter(bool), st.integers(0, 1))
def test_argmax(rows: int, columns: int, dim: int) -> None:
    x = random(f("f32", rows, columns)).round()
    k = np.ascontiguousarray(np.broadcast_to(np.expand_dims(np.arange((rows, columns)[dim]), 1 - dim), (rows, columns)))
    shapes = [f("f32", rows, columns), f("s32", rows, columns), f("f32"), f("s32")]
    i = instruction("reduce", *shapes, dimensions=(dim,), to_apply=argmax("f32"))
    check(i, [x, k.astype(np.int32), np.float32(-np.inf), np.int32(0)])


def test_long_sums_keep_their_accuracy() -> None:
    x = np.abs(random(f("f32", 3, 200_000)))
    for dims, shape in (((1,), (3, 200_000)), ((0,), (200_000, 3)), ((0, 1), (3, 200_000))):
        y = x.reshape(shape)
        i = instruction(
            "reduce", f("f32", *shape), f("f32"), dimensions=dims, to_apply=binary_computation("add", "f32")
        )
        [got] = compile_and_run(i, [y, np.float32(1)])
        np.testing.assert_allclose(got, y.sum(axis=dims, dtype=np.float64) + 1, rtol=4e-7)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_dot(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["f32", "f64", "bf16", "f16", "c64", "s32", "pred"]))
    batch = data.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    free = [data.draw(st.lists(st.sampled_from([1, 4, 9, 16]), max_size=2)) for _ in range(2)]
    depth = data.draw(st.lists(st.sampled_from([1, 5, 16]), max_size=2))
    sides = []
    for own in free:
        order = data.draw(st.permutations(range(len(batch) + len(own) + len(depth))))
        sizes = [*batch, *own, *depth]
        place = {role: position for position, role in enumerate(order)}
        dims = tuple(sizes[role] for role in order)
        b = tuple(place[k] for k in range(len(batch)))
        c = tuple(place[len(batch) + len(own) + k] for k in range(len(depth)))
        sides.append((dims, b, c))
    (left, left_batch, left_sum), (right, right_batch, right_sum) = sides
    i = instruction(
        "dot", f(dtype, *left), f(dtype, *right), lhs_batch_dims=left_batch, rhs_batch_dims=right_batch,
        lhs_contracting_dims=left_sum, rhs_contracting_dims=right_sum,
    )  # fmt: skip
    check(i, [random(f(dtype, *left)), random(f(dtype, *right), 1)], ulp=24)


def test_dot_widens_to_the_result_type() -> None:
    attrs = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    for source, target in (("bf16", "f32"), ("s8", "s32"), ("f8e4m3fn", "f32"), ("f32", "f64")):
        i = instruction("dot", f(source, 20, 30), f(source, 30, 10), shape=f(target, 20, 10), **attrs)
        check(i, [random(f(source, 20, 30)), random(f(source, 30, 10), 1)], ulp=24)


def softmax(rows: int, columns: int) -> Instruction:
    b = Builder("softmax")
    s = f("f32", rows, columns)
    x = b.parameter(s)
    spread = {"shape": s, "dimensions": (0,)}
    top = b.add("reduce", x, b.constant(-np.inf, "f32"), dimensions=(1,), to_apply=binary_computation("maximum", "f32"))
    e = b.add("exponential", b.add("subtract", x, b.add("broadcast", top, **spread)))
    total = b.add("reduce", e, b.constant(0.0, "f32"), dimensions=(1,), to_apply=binary_computation("add", "f32"))
    return fusion(b.build(b.add("divide", e, b.add("broadcast", total, **spread))))


@pytest.mark.parametrize("columns", [1, 7, 32, 33, 300])
def test_fused_softmax(columns: int) -> None:
    check(softmax(9, columns), [random(f("f32", 9, columns))], ulp=8)
    check(softmax(9, columns), [random(f("f32", 9, columns))], ulp=8, in_place=0)


@SETTINGS
@given(DIM.filter(bool), DIM.filter(bool))
def test_fused_movement(rows: int, columns: int) -> None:
    """Several results, one of them transposed reads, slices, pads, concatenation, iota, masks."""
    b = Builder("mixed")
    x, y, bias = (
        b.parameter(f("f32", rows, columns)),
        b.parameter(f("f32", columns, rows)),
        b.parameter(f("f32", columns)),
    )
    s = f("f32", rows, columns)
    z = b.add("add", x, b.add("transpose", y, dimensions=(1, 0)))
    z = b.add("multiply", z, b.add("broadcast", bias, shape=s, dimensions=(1,)))
    row = b.add("iota", shape=f("s32", rows, columns), iota_dimension=0)
    column = b.add("iota", shape=f("s32", rows, columns), iota_dimension=1)
    causal = b.add("compare", row, column, direction="GE")
    masked = b.add("select", causal, z, b.constant(-1.5, "f32", (rows, columns)))
    padded = b.add("pad", b.add("slice", masked, slice=((0, rows, 1), (0, columns, 2))), b.constant(2.0, "f32"),
                   padding=((0, 0, 0), (0, columns - (columns + 1) // 2, 0)))  # fmt: skip
    flat = b.add("reshape", b.add("reshape", padded, shape=f("f32", rows * columns)), shape=s)
    both = b.add("concatenate", flat, x, dimensions=(1,))
    half = b.add("slice", both, slice=((0, rows, 1), (columns // 2, columns // 2 + columns, 1)))
    root = b.add("tuple", b.add("reverse", half, dimensions=(1,)), masked)
    i = fusion(b.build(root))
    check(i, [random(p.shape, k) for k, p in enumerate(i.operands)], ulp=2)


def test_fused_reduction_with_epilogue_and_narrow_types() -> None:
    for dims in ((0,), (1,)):
        b = Builder("stats")
        x = b.parameter(f("bf16", 40, 24))
        wide = b.add("convert", x, shape=f("f32", 40, 24))
        square = b.add("multiply", wide, wide)
        total = b.add(
            "reduce", square, b.constant(0.0, "f32"), dimensions=dims, to_apply=binary_computation("add", "f32")
        )
        i = fusion(b.build(b.add("rsqrt", total)))
        check(i, [random(f("bf16", 40, 24))], ulp=8)


def test_fused_split_and_merged_dimensions() -> None:
    """Attention's heads: [b, t, h * d] seen as [b, h, t, d] and back."""
    b = Builder("heads")
    x = b.parameter(f("f32", 2, 6, 24))
    doubled = b.add("add", x, x)
    heads = b.add("transpose", b.add("reshape", doubled, shape=f("f32", 2, 6, 3, 8)), dimensions=(0, 2, 1, 3))
    back = b.add(
        "reshape", b.add("transpose", b.add("negate", heads), dimensions=(0, 2, 1, 3)), shape=f("f32", 2, 6, 24)
    )
    check(fusion(b.build(heads)), [random(x.shape)])
    check(fusion(b.build(back)), [random(x.shape)])
    odd = Builder("odd")
    y = odd.parameter(f("s32", 10, 6))
    check(fusion(odd.build(odd.add("reshape", odd.add("negate", y), shape=f("s32", 4, 15)))), [random(y.shape)])


def test_constants_inside_fusions() -> None:
    b = Builder("table")
    x = b.parameter(f("f32", 3, 7))
    table = b.constant(np.arange(21, dtype=np.float32).reshape(3, 7))
    check(fusion(b.build(b.add("multiply", x, table))), [random(x.shape)])


def test_fused_gather_from_computed_indices() -> None:
    b = Builder("lookup")
    table, ids = b.parameter(f("f32", 11, 20)), b.parameter(f("s32", 5))
    shifted = b.add("reshape", b.add("add", ids, b.constant(1, "s32", (5,))), shape=f("s32", 5, 1))
    rows = b.add(
        "gather", table, shifted, offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,),
        index_vector_dim=1, slice_sizes=(1, 20),
    )  # fmt: skip
    i = fusion(b.build(b.add("tanh", rows)))
    check(i, [random(table.shape), np.array([0, 4, 10, -3, 9], np.int32)], ulp=3)


def test_fused_dot_and_windows() -> None:
    b = Builder("small")
    x, y = b.parameter(f("f32", 5, 6)), b.parameter(f("f32", 6, 3))
    product = b.add("dot", b.add("tanh", x), y, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    check(fusion(b.build(b.add("negate", product))), [random(x.shape), random(y.shape, 1)], ulp=8)
