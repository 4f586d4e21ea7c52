"""Products on a GPU, under emulation against the evaluator: sizes around tiles, orders of dimensions, types, parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.products import product
from shardc.compiler.gpu.products.plan import ProductPlan, plan_product
from shardc.compiler.gpu.products.problem import dot_problem
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES
from shardc.hlo.ir.types import array_shape as f
from shardc.native.gpu.emulated.coroutines import FORWARD, REVERSE, ThreadOrder, new_emulated_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import (
    as_instruction,
    assemble_kernel,
    assert_light,
    check_gpu,
    kernel_ptx,
    run_gpu_kernel,
)
from tests.compiler.kernel_runner import instruction
from tests.compiler.test_products import Sizes, dot

FULL = pytest.mark.full
TF32 = Tuning(tf32=True)
#: Two orders of threads, for kernels whose emulation takes long.
FEW = (FORWARD, ThreadOrder("random", 3))

ORDERS = [("bmk", "bkn"), ("bkm", "bkn"), ("bmk", "bnk"), ("bkm", "bnk"), ("mbk", "kbn"), ("mkb", "nkb")]


def in_full(*rows: object) -> list[Any]:
    return [pytest.param(row, marks=FULL) for row in rows]


def whole(i: Instruction, seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums in any order are exact."""
    rng = np.random.default_rng(seed)
    found = []
    for o in i.operands:
        values = rng.integers(-3, 4, o.shape.dims)
        if o.shape.dtype.is_complex:
            values = values + 1j * rng.integers(-3, 4, o.shape.dims)
        found.append(np.abs(values) if not o.shape.dtype.is_float and o.shape.dtype.kind == "unsigned" else values)
    return [np.asarray(v).astype(o.shape.dtype.numpy) for v, o in zip(found, i.operands, strict=True)]


def plan(i: Instruction, tuning: Tuning = DEFAULT) -> ProductPlan:
    found = next((x for x in i.attrs["calls"] if x.opcode == "dot"), None) if i.opcode == "fusion" else i
    assert found is not None
    return plan_product(dot_problem(found), gpu_target("cuda-emulated"), tuning)


def agrees(i: Instruction, tuning: Tuning = DEFAULT) -> None:
    check_gpu(i, whole(i), tuning=tuning, orders=FEW)


#: Both sides by depth, neither, and batches inside: what makes other code; all of them in full.
SOME = [o if n in (0, 3, 5) else pytest.param(o, marks=FULL) for n, o in enumerate(ORDERS)]


@pytest.mark.parametrize("order", SOME)
@pytest.mark.parametrize("dtype", ["f32", "bf16", pytest.param("f64", marks=FULL), pytest.param("c64", marks=FULL)])
def test_orders_of_dimensions(dtype: str, order: tuple[str, str]) -> None:
    agrees(dot(dtype, (2, 40, 36, 50), order, "f32" if dtype == "bf16" else None))
    agrees(dot(dtype, (2, 16, 64, 64), order))


SIZES: list[Sizes] = [
    (1, 9, 10, 11), (1, 130, 70, 40), (1, 1, 200, 90), (1, 200, 1, 90), (3, 33, 13, 257), (5, 8, 32, 32), (1, 1, 1, 9),
]  # fmt: skip
TYPES = ["f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128", "s8", "u16", "s32", "s64", "pred"]


@st.composite
def dots(draw: st.DrawFn) -> Instruction:
    """Up to two batch, contracted and free dimensions a side, in any order."""
    sizes = {name: draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 24])) for name in "bcklmnop"}
    names = [draw(st.sampled_from(["", *both])) for both in (("b", "bc"), ("l", "lm"), ("n", "no"))]
    depth = draw(st.sampled_from(["k", "kp"]))
    left = "".join(draw(st.permutations(names[0] + names[1] + depth)))
    right = "".join(draw(st.permutations(names[0] + names[2] + depth)))
    shapes = [f(draw(st.sampled_from(["f32", "bf16"])), *(sizes[d] for d in side)) for side in (left, right)]
    fields = {
        f"{side}_{role}_dims": tuple(order.index(d) for d in dims)
        for side, order in (("lhs", left), ("rhs", right))
        for role, dims in (("batch", names[0]), ("contracting", depth))
    }
    kept = [d for d in left if d in names[1]] + [d for d in right if d in names[2]]
    return instruction("dot", *shapes, shape=f("f32", *(sizes[d] for d in (*names[0], *kept))), **fields)


@settings(max_examples=10, deadline=None)
@given(dots())
def test_any_dimensions(i: Instruction) -> None:
    agrees(i)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["f32", pytest.param("f16", marks=FULL)])
def test_ragged_sizes(dtype: str, sizes: Sizes) -> None:
    agrees(dot(dtype, sizes, ("bmk", "bkn"), "f32"))


@pytest.mark.parametrize(
    "dtype", ["f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128", "s8", "u16", "s32", "s64", "pred"]
)
def test_every_type(dtype: str) -> None:
    agrees(dot(dtype, (2, 35, 20, 24), ("bmk", "bkn")))


@pytest.mark.parametrize(("dtype", "result"), [("s8", "s32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "bf16")])
def test_results_of_other_types(dtype: str, result: str) -> None:
    agrees(dot(dtype, (1, 20, 40, 24), ("bmk", "bnk"), result))


@pytest.mark.parametrize("order", SOME[:4])
@pytest.mark.parametrize("sizes", [(1, 64, 40, 64), pytest.param((1, 61, 67, 41), marks=FULL)])
def test_tf32_where_it_is_allowed(order: tuple[str, str], sizes: Sizes) -> None:
    """Whole numbers of few bits are exact in tf32."""
    i = dot("f32", sizes, order)
    mma = plan(i, TF32).mma
    assert mma is not None and mma.name == "tf32" and plan(i).mma is None
    agrees(i, TF32)


@pytest.mark.parametrize(
    "dtype", ["f32", "bf16", "pred", *(pytest.param(t, marks=FULL) for t in ("c64", "f64", "s32"))]
)
def test_parts_of_the_depth(dtype: str) -> None:
    """Few tiles and a long sum: the parts are added up by a second launch."""
    i = dot(dtype, (1, 24, 20, 6000), ("bmk", "bkn"))
    assert plan(i).splits > 1
    agrees(i)


def test_parts_of_a_depth_that_does_not_divide() -> None:
    i = dot("f32", (1, 9, 7, 5001), ("bkm", "bnk"))
    assert plan(i).splits > 1
    agrees(i)


def test_rounding_is_that_of_sums_in_f32() -> None:
    """Against float64, within what sums of so many terms may lose."""
    rng = np.random.default_rng(0)
    for dtype in ("f32", "bf16"):
        i = dot(dtype, (1, 64, 64, 700), ("bmk", "bkn"), "f32")
        x, y = (rng.standard_normal(o.shape.dims).astype(DTYPES[dtype].numpy) for o in i.operands)
        check_gpu(i, [x, y], ulp=64, orders=(REVERSE,))


FUSED = """
HloModule m
ENTRY main {
  x = T[2,40,24] parameter(0)
  w = T[24,36] parameter(1)
  bias = T[36] parameter(2)
  residual = T[2,40,36] parameter(3)
  y = T[2,40,36] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  b = T[2,40,36] broadcast(bias), dimensions={2}
  z = T[2,40,36] add(y, b)
  t = T[2,40,36] tanh(z)
  m = T[2,40,36] multiply(t, residual)
  ROOT both = (T[2,40,36], T[2,40,36]) tuple(z, m)
}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("depth", [24, 4000])
def test_what_is_made_from_a_product(dtype: str, depth: int) -> None:
    """Bias, activation and residual, two results; in the same launch, or in that which adds up parts."""
    text = FUSED.replace("T[", f"{dtype}[").replace("24", str(depth))
    rng = np.random.default_rng(1)
    i = as_instruction(text)
    assert (plan(i).splits > 1) == (depth > 1000)
    numpy = DTYPES[dtype].numpy
    arguments = [(rng.standard_normal(o.shape.dims) / np.sqrt(depth)).astype(numpy) for o in i.operands]
    check_gpu(i, arguments, ulp=8 if dtype == "f32" else 2, orders=FEW)


def test_result_over_the_residual() -> None:
    """The result lies where an operand of the arithmetic lies."""
    text = FUSED.replace("T[", "f32[").replace("ROOT both = (f32[2,40,36], f32[2,40,36]) tuple(z, m)", "")
    text = text.replace("  m = f32", "  ROOT m = f32")
    i = as_instruction(text)
    rng = np.random.default_rng(2)
    arguments = [rng.standard_normal(o.shape.dims).astype(np.float32) for o in i.operands]
    check_gpu(i, arguments, ulp=32, in_place={3: 0}, orders=FEW)


def test_operands_made_on_the_way() -> None:
    """What is computed from parameters before the product is computed as its tiles are brought."""
    text = """
HloModule m
ENTRY main {
  x = bf16[64,32] parameter(0)
  s = f32[64,32] parameter(1)
  w = f32[32,48] parameter(2)
  c = f32[64,32] convert(x)
  a = f32[64,32] multiply(c, s)
  ROOT y = f32[64,48] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    i = as_instruction(text)
    check_gpu(i, whole(i), orders=FEW)


def test_sums_beside_a_product_are_not_done_by_every_tile() -> None:
    """Rows scaled by their sums before the product: other launches make them."""
    text = """
HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[64,32] parameter(0)
  w = f32[32,48] parameter(1)
  z = f32[] constant(0)
  s = f32[64] reduce(x, z), dimensions={1}, to_apply=sum
  b = f32[64,32] broadcast(s), dimensions={0}
  a = f32[64,32] multiply(x, b)
  ROOT y = f32[64,48] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    i = as_instruction(text)
    assert not product.takes_product(GpuKernel(new_emulated_module("test"), i, "k", gpu_target("cuda-emulated")))
    check_gpu(i, whole(i), orders=FEW)


#: Registers that let two blocks of 256 threads, or of 128, be at work in a multiprocessor.
TWO_OF_256, TWO_OF_128 = 128, 255
LARGE: list[tuple[str, Tuning, int]] = [
    ("f32", DEFAULT, TWO_OF_256), ("f32", TF32, TWO_OF_128), ("bf16", DEFAULT, TWO_OF_128),
    ("f16", DEFAULT, TWO_OF_128), ("f64", DEFAULT, TWO_OF_256), ("c64", DEFAULT, TWO_OF_256),
    ("c128", DEFAULT, TWO_OF_256), ("s8", DEFAULT, TWO_OF_256), ("s64", DEFAULT, TWO_OF_256),
    ("pred", DEFAULT, TWO_OF_256),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "tuning", "registers"), [row if n < 3 else pytest.param(*row, marks=FULL) for n, row in enumerate(LARGE)]
)
@pytest.mark.parametrize("order", [ORDERS[0], pytest.param(ORDERS[3], marks=FULL)])
def test_large_products_stay_in_registers(dtype: str, tuning: Tuning, registers: int, order: tuple[str, str]) -> None:
    assert_light(assemble_kernel(dot(dtype, (1, 2048, 2048, 2048), order), tuning=tuning), registers)


OTHERS = [(1, 8, 4096, 4096), (1, 1001, 999, 1003), *in_full((1, 4096, 8, 4096), (64, 128, 128, 64))]


@pytest.mark.parametrize("sizes", OTHERS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_other_sizes_stay_in_registers(dtype: str, sizes: Sizes) -> None:
    assert_light(assemble_kernel(dot(dtype, sizes, ("bmk", "bkn")), archs=("sm_90",)), 160)


def test_a_large_product_reads_in_whole_lines() -> None:
    """The code of the main loop: copies and reads of 16 bytes, tensor cores for bf16."""
    text = kernel_ptx(dot("f32", (1, 2048, 2048, 2048), ORDERS[0])).decode()
    assert "ld.global.nc.v4" in text and "ld.shared.v4" in text and "st.global.v4" in text
    text = kernel_ptx(dot("bf16", (1, 2048, 2048, 2048), ORDERS[0])).decode()
    assert "cp.async.cg.shared.global" in text and text.count("mma.sync") == 64 and "ldmatrix" in text


def test_a_missing_barrier_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that read sums which others have not written yet: orders of threads disagree."""
    i = dot("f32", (1, 32, 32, 32), ORDERS[0])
    collect = product._TiledProduct._collect

    def without(self: product._TiledProduct) -> tuple[int, int]:
        with monkeypatch.context() as patch:
            patch.setattr(type(self.code), "barrier", lambda *_: None)
            return collect(self)

    monkeypatch.setattr(product._TiledProduct, "_collect", without)
    with pytest.raises(AssertionError, match="order of threads"):
        run_gpu_kernel(i, whole(i))
