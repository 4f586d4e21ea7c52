"""Transposing maps, column reductions and stores past the cache, in chunks of any order, against the evaluator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.tuning import Tuning
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape as f
from shardc.native.llvm import jit
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.llvm.target import Target, host_target
from tests.compiler.kernel_runner import Array, assert_close, check, expected, fusion, instruction, random

SETTINGS = settings(max_examples=20, deadline=None, derandomize=True)
SIZE = st.sampled_from([1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 40, 65])
WIDTHS = ["s8", "pred", "bf16", "f16", "u16", "f32", "s64", "c64", "c128"]
#: Even small results are written past the cache.
EAGER = Tuning(streamed=1)

_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _pool(order: Callable[[int], Sequence[tuple[int, int]]]) -> Callable[..., None]:
    """What the pool does, in an order of our own."""

    def run(function: int, context: int, count: int, *rest: object) -> None:
        for begin, end in order(count):
            _Body(function)(context, begin, end)

    return run


ORDERS = {
    "at once": lambda n: [(0, n)],
    "backwards": lambda n: [(k, k + 1) for k in reversed(range(n))],
    "two halves": lambda n: [(n // 2, n), (0, n // 2)],
}


def run_in_chunks(i: Instruction, arguments: Sequence[Array], order: str, target: Target | None = None) -> list[Array]:
    """The kernel's results; memory starts at cache lines."""
    module = jit.new_module("test", target)
    emit_kernel(module, i, "k", target, EAGER)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    pool = kind(_pool(ORDERS[order]))
    code = jit.compile_ir(module, target)
    symbols = (
        {PARALLEL: ctypes.cast(pool, ctypes.c_void_p).value or 0} if PARALLEL in jit.undefined_symbols(code) else {}
    )
    loaded = jit.load_object(code, ["k"], symbols)
    inputs = [np.ascontiguousarray(a) for a in arguments]
    outputs = [_lines(s.nbytes).view(s.dtype.numpy)[: s.size].reshape(s.dims) for s in i.shape.leaves()]
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(inputs) + len(outputs)), ctypes.c_int32)
    signature(loaded.address("k"))(*(a.ctypes.data for a in (*inputs, *outputs)), 0)
    return outputs


def _lines(nbytes: int) -> Array:
    room = np.full(nbytes + 128, 0x5A, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small maps are cut into chunks."""
    monkeypatch.setattr("shardc.compiler.cpu.function.map_chunks", lambda *_: 5)
    monkeypatch.setattr("shardc.compiler.cpu.loops.updates.chunks", lambda *, most=5, **_: min(5, most))


@SETTINGS
@given(st.lists(SIZE, min_size=2, max_size=4), st.sampled_from(WIDTHS), st.randoms(use_true_random=False))
def test_transposes_of_every_width(dims: list[int], dtype: str, rng: np.random.Generator) -> None:
    order = list(range(len(dims)))
    rng.shuffle(order)
    i = instruction("transpose", f(dtype, *dims), dimensions=tuple(order))
    check(i, [random(f(dtype, *dims), 1)])


@SETTINGS
@given(SIZE, SIZE, st.integers(0, 3), st.sampled_from(["f32", "bf16", "f64", "c64", "c128"]), st.integers(1, 5))
def test_transposes_with_arithmetic_of_a_misaligned_slice(n: int, m: int, first: int, dtype: str, steps: int) -> None:
    b = Builder("fused")
    x, y = b.parameter(f(dtype, n + 5, m + 3)), b.parameter(f(dtype, m, n))
    part = b.add("slice", x, slice=((first, first + n, 1), (first, first + m, 1)))
    value = b.add("transpose", part, dimensions=(1, 0))
    for _ in range(steps):
        value = b.add("add" if dtype.startswith("c") else "maximum", b.add("negate", value), y)
    i = fusion(b.build(value))
    check(i, [random(o.shape, k) for k, o in enumerate(i.operands)])


@pytest.mark.parametrize("dtype", ["c64", "c128", "f64"])
@pytest.mark.parametrize("n", [3, 5, 9, 17])
def test_transposes_of_chosen_elements_with_one_row_left(n: int, dtype: str) -> None:
    b = Builder("fused")
    x, mask, other = b.parameter(f(dtype, n, n)), b.parameter(f("pred", n, n)), b.parameter(f(dtype))
    beside = b.add("broadcast", other, shape=f(dtype, n, n), dimensions=())
    chosen = b.add("transpose", b.add("select", mask, x, beside), dimensions=(1, 0))
    i = fusion(b.build(b.add("add", chosen, beside)))
    check(i, [random(o.shape, k) for k, o in enumerate(i.operands)])


@pytest.mark.parametrize("features", ["+sse2", "+avx,+avx2", None])
def test_squares_of_every_vector_width(features: str | None) -> None:
    host = host_target()
    narrow = None if features is None else Target(host.triple, "x86-64", features)
    if narrow is not None and not host.triple.startswith("x86_64"):
        pytest.skip("vector widths of x86")
    for dtype, n, m in (
        ("s8", 37, 70),
        ("u16", 64, 48),
        ("f32", 37, 70),
        ("f32", 48, 64),
        ("s64", 16, 21),
        ("c128", 9, 7),
    ):
        i = instruction("transpose", f(dtype, n, m), dimensions=(1, 0))
        x = random(f(dtype, n, m))
        (got,) = run_in_chunks(i, [x], "at once", narrow)
        np.testing.assert_array_equal(got, x.T)


def _cases() -> dict[str, Instruction]:
    """Kernels that are cut into chunks in different ways."""
    add = binary_computation("add", "f32")
    b = Builder("fused")
    x = b.parameter(f("f32", 3, 24, 300))
    zero = b.parameter(f("f32"))
    square = b.add("multiply", x, x)
    total = b.add("reduce", square, zero, dimensions=(1,), to_apply=add)
    spread = b.add("reduce", square, zero, dimensions=(0, 1), to_apply=add)
    return {
        "transpose": instruction("transpose", f("f32", 130, 96), dimensions=(1, 0)),
        "heads": instruction("transpose", f("f32", 3, 10, 6, 32), dimensions=(0, 2, 1, 3)),
        "tail": instruction("transpose", f("f32", 33, 5, 47), dimensions=(2, 1, 0)),
        "map": instruction("add", f("f32", 16, 96), f("f32", 16, 96)),
        "columns": fusion(b.build(total)),
        "all but columns": fusion(b.build(spread)),
        "largest of columns": instruction(
            "reduce", f("s32", 41, 700), f("s32"), dimensions=(0,), to_apply=binary_computation("maximum", "s32")
        ),
        "narrow sums": instruction(
            "reduce", f("bf16", 19, 513), f("bf16"), dimensions=(0,), to_apply=binary_computation("add", "bf16")
        ),
        "complex sums": instruction(
            "reduce", f("c64", 19, 200), f("c64"), dimensions=(0,), to_apply=binary_computation("add", "c64")
        ),
        "scatter": instruction(
            "scatter",
            f("f32", 6, 700),
            f("s32", 20, 1),
            f("f32", 20, 700),
            update_window_dims=(1,),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            to_apply=add,
        ),
        "update": instruction(
            "dynamic-update-slice",
            f("f32", 40, 70),
            f("f32", 30, 65),
            f("s32"),
            f("s32"),
        ),
        "bytes": instruction("dynamic-update-slice", f("u8", 13, 7), f("u8", 11, 5), f("s32"), f("s32")),
        "short rows": instruction("reduce", f("f32", 7, 33, 12), f("f32"), dimensions=(2,), to_apply=add),
        "everything": instruction("reduce", f("f32", 50, 70), f("f32"), dimensions=(0, 1), to_apply=add),
    }


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", list(_cases()))
def test_chunks_in_any_order_give_the_same_bits(name: str) -> None:
    i = _cases()[name]
    arguments = [random(o.shape, k) for k, o in enumerate(i.operands)]
    first, *others = [run_in_chunks(i, arguments, order) for order in ORDERS]
    for got, wanted, shape in zip(first, expected(i, arguments), i.shape.leaves(), strict=True):
        assert_close(got, np.asarray(wanted), shape, 64)
    for other in others:
        for x, y in zip(first, other, strict=True):
            assert x.tobytes() == y.tobytes()


@pytest.mark.usefixtures("eager")
def test_large_results_are_written_past_the_cache() -> None:
    module = jit.new_module("test")
    emit_kernel(module, instruction("transpose", f("f32", 130, 96), dimensions=(1, 0)), "k", tuning=EAGER)
    text = str(module)
    assert "!nontemporal" not in text  # rows of 130 elements do not start at lines
    module = jit.new_module("test")
    emit_kernel(module, instruction("transpose", f("f32", 128, 96), dimensions=(1, 0)), "k", tuning=EAGER)
    assert "!nontemporal" in str(module)
    assert "fence seq_cst" in str(module)


@SETTINGS
@given(st.integers(8, 40), st.integers(100, 600), st.sampled_from(["add", "maximum", "minimum", "multiply"]))
def test_columns_with_special_values(rows: int, columns: int, opcode: str) -> None:
    x = np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(np.float32)
    x[0, ::7], x[1, ::11], x[2, ::13], x[3, ::17] = np.nan, np.inf, -np.inf, 1e-42
    i = instruction("reduce", f("f32", rows, columns), f("f32"), dimensions=(0,),
                    to_apply=binary_computation(opcode, "f32"))  # fmt: skip
    check(i, [x, np.float32(1)], ulp=64)


@SETTINGS
@given(
    st.sampled_from([(70, 16), (33, 5), (3, 16, 17), (40, 4, 8), (130, 31), (9, 16), (64, 33)]),
    st.sampled_from(["f32", "bf16", "f64", "s8", "c64", "pred"]),
    st.sampled_from(["add", "maximum", "minimum"]),
    st.booleans(),
)
def test_short_rows(dims: tuple[int, ...], dtype: str, opcode: str, shifted: bool) -> None:
    if dtype in ("c64", "pred"):
        opcode = {"c64": "add", "pred": "or"}[dtype]
    kept = dims[:2] if dims[0] == 3 else dims[:1]
    b = Builder("fused")
    x, y, init = b.parameter(f(dtype, *dims)), b.parameter(f(dtype, *kept)), b.parameter(f(dtype))
    spread = b.add("broadcast", y, shape=f(dtype, *dims), dimensions=tuple(range(len(kept))))
    value = b.add({"pred": "xor"}.get(dtype, "subtract"), x, spread) if shifted else x
    over = tuple(range(len(kept), len(dims)))
    result = b.add("reduce", value, init, dimensions=over, to_apply=binary_computation(opcode, dtype))
    i = fusion(b.build(result))
    check(i, [random(o.shape, k) for k, o in enumerate(i.operands)], ulp=64)
