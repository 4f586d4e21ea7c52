"""Convolutions on a GPU, under emulation against the evaluator: any order of dimensions, windows, groups, gradients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import find_kernel_emitter
from shardc.compiler.lower.for_gpu import lower_for_gpu
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.text.reader import read_hlo
from shardc.native.gpu.emulated.coroutines import FORWARD, ThreadOrder, new_emulated_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import as_instruction, assemble_kernel, assert_light, check_gpu, emulated
from tests.compiler.kernel_runner import instruction
from tests.compiler.property_support import small
from tests.compiler.test_convolutions import NHWC, WEIGHTS, convolutions

FULL = pytest.mark.full
FEW = (FORWARD, ThreadOrder("random", 5))
NCHW = ConvDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
SAME = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 1, 1, 1)))


def emitter_name(i: Instruction) -> str:
    found = find_kernel_emitter(GpuKernel(new_emulated_module("test"), i, "k", gpu_target("cuda-emulated")))
    assert found is not None
    return found.name


def agrees(i: Instruction, seed: int = 0) -> None:
    """Whole numbers, so that sums in any order are exact."""
    assert emitter_name(i) == "convolution"
    check_gpu(i, [small(o.shape, seed + n) for n, o in enumerate(i.operands)], orders=FEW)


@pytest.mark.parametrize("dtype", ["f32", "bf16", pytest.param("f64", marks=FULL), pytest.param("c64", marks=FULL)])
def test_random_convolutions(dtype: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(convolutions(dtype), st.integers(0, 99))
    def run(i: Instruction, seed: int) -> None:
        check_gpu(i, [small(o.shape, seed + n) for n, o in enumerate(i.operands)], orders=FEW)

    run()


@pytest.mark.parametrize("labels", [NHWC, NCHW])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_features_first_or_last(dtype: str, labels: ConvDims) -> None:
    left, right = ((2, 9, 11, 16), (3, 3, 16, 24)) if labels is NHWC else ((2, 16, 9, 11), (24, 16, 3, 3))
    agrees(instruction("convolution", f(dtype, *left), f(dtype, *right), window=SAME, dim_labels=labels))


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f32", marks=FULL), pytest.param("s32", marks=FULL)])
def test_strides_and_groups(dtype: str) -> None:
    window = Window((WindowDim(3, 2, 1, 1), WindowDim(3, 2, 0, 1, 1, 2)))
    operands = f(dtype, 2, 9, 11, 16), f(dtype, 3, 3, 4, 32)
    agrees(instruction("convolution", *operands, window=window, dim_labels=NHWC, feature_group_count=4))


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=FULL)])
def test_gradient_of_weights(dtype: str) -> None:
    """A small result over a long depth, in parts."""
    window = Window((WindowDim(13, 1, 1, 1), WindowDim(16, 1, 1, 1)))
    i = instruction("convolution", f(dtype, 20, 13, 16, 8), f(dtype, 20, 13, 16, 8), window=window, dim_labels=WEIGHTS)
    assert len(emulated(i)[1].steps) > 1
    agrees(i)


def test_gradient_of_inputs() -> None:
    """A dilated input: one product per part; rows that meet no input are zero."""
    window = Window((WindowDim(3, 1, 1, 2, 2, 1, True), WindowDim(1, 1, 0, 1, 2, 1, True)))
    i = instruction("convolution", f("f32", 2, 5, 6, 8), f("f32", 3, 1, 8, 8), window=window, dim_labels=NHWC)
    assert len(emulated(i)[1].steps) > 2
    agrees(i)


def test_gaps_too_wide_to_be_parted() -> None:
    window = Window((WindowDim(16, 1, 12, 12, 8), WindowDim(12, 1, 9, 9, 6)))
    agrees(instruction("convolution", f("f32", 1, 3, 2, 7), f("f32", 16, 12, 7, 4), window=window, dim_labels=NHWC))


def test_single_channels_with_few_taps_are_maps() -> None:
    operands = f("f32", 2, 9, 8, 12), f("f32", 3, 3, 1, 12)
    i = instruction("convolution", *operands, window=SAME, dim_labels=NHWC, feature_group_count=12)
    assert emitter_name(i) == "loop"


FUSED = """
HloModule m
ENTRY main {
  x = T[2,9,8,16] parameter(0)
  w = T[3,3,16,24] parameter(1)
  bias = T[24] parameter(2)
  y = T[2,9,8,24] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  b = T[2,9,8,24] broadcast(bias), dimensions={3}
  s = T[2,9,8,24] add(y, b)
  z = T[] constant(0)
  zs = T[2,9,8,24] broadcast(z), dimensions={}
  ROOT r = T[2,9,8,24] maximum(s, zs)
}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_made_from_a_convolution(dtype: str) -> None:
    """One launch for bias and activation, too; the lowering for GPUs makes such kernels."""
    text = FUSED.replace("T[", f"{dtype}[")
    agrees(as_instruction(text))
    lowered = lower_for_gpu(read_hlo(text), gpu_target("cuda-emulated"))
    (kernel,) = lowered.instructions
    assert kernel.opcode == "fusion"
    assert emitter_name(kernel) == "convolution"


Sizes = tuple[int, ...]
LARGE: list[tuple[Sizes, Sizes, ConvDims]] = [
    ((32, 56, 56, 64), (3, 3, 64, 64), NHWC),
    ((32, 64, 56, 56), (64, 64, 3, 3), NCHW),
    ((32, 28, 28, 128), (3, 3, 128, 128), NHWC),
]


@pytest.mark.parametrize(("left", "right", "labels"), LARGE)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_large_convolutions_stay_in_registers(dtype: str, left: Sizes, right: Sizes, labels: ConvDims) -> None:
    i = instruction("convolution", f(dtype, *left), f(dtype, *right), window=SAME, dim_labels=labels)
    assert_light(assemble_kernel(i, archs=("sm_80",)), 160 if dtype == "f32" else 255)
