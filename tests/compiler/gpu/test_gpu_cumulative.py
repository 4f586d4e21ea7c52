"""Running totals on GPUs: along memory and across it, both ways, in chunks where little is side by side."""

from __future__ import annotations

import pytest

from shardc.compiler.gpu.cumulative import takes_cumulative
from shardc.compiler.gpu.function import GpuKernel
from shardc.hlo.ir import Instruction
from shardc.hlo.text.reader import read_hlo
from shardc.native.gpu.emulated import new_emulated_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import assemble_kernel, assert_light, check_gpu, emulated
from tests.compiler.kernel_runner import random

BODY = """
op {{ a = {0}[] parameter(0)
  b = {0}[] parameter(1)
  ROOT r = {0}[] {1}(a, b) }}
"""
TWO = """
op { a = f32[] parameter(0)
  n = s32[] parameter(1)
  b = f32[] parameter(2)
  m = s32[] parameter(3)
  c = f32[] subtract(b, a)
  k = s32[] subtract(n, m)
  ROOT r = (f32[], s32[]) tuple(c, k) }
"""


def root_of(text: str) -> Instruction:
    """The last instruction alone, over parameters."""
    root = read_hlo(text).entry.root
    operands = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(root.operands)]
    return root.replace(operands=tuple(operands))


def totals(
    dims: tuple[int, ...], d: int, dtype: str = "f32", opcode: str = "add", *, backwards: bool = False
) -> Instruction:
    size, shape = dims[d], f"{dtype}[{','.join(map(str, dims))}]"
    low, high = (0, size - 1) if backwards else (size - 1, 0)
    sizes = "x".join(str(size if k == d else 1) for k in range(len(dims)))
    pads = "x".join(f"{low}_{high}" if k == d else "0_0" for k in range(len(dims)))
    return root_of(
        f"HloModule m\n{BODY.format(dtype, opcode)}ENTRY main {{\nx = {shape} parameter(0)\n"
        f"z = {dtype}[] parameter(1)\n"
        f"ROOT r = {shape} reduce-window(x, z), window={{size={sizes} pad={pads}}}, to_apply=op\n}}\n"
    )


def check_totals(i: Instruction, ulp: float = 64) -> None:
    assert takes_cumulative(GpuKernel(new_emulated_module("m"), i, "k", gpu_target("cuda-emulated")))
    check_gpu(i, [random(o.shape, n) for n, o in enumerate(i.operands)], ulp=ulp)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("dims", "d"),
    [
        ((7,), 0),
        ((33, 2), 1),
        ((5, 33), 1),
        ((6, 32), 1),
        ((5, 33), 0),
        ((3, 4, 1), 1),
        ((2, 6, 50), 1),
        ((3, 1000), 1),
    ],
)
def test_totals(dims: tuple[int, ...], d: int, backwards: bool) -> None:
    check_totals(totals(dims, d, backwards=backwards))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("dims", "d"), [((1, 2049), 1), ((301, 3), 0), ((1000, 4), 0)])
def test_what_is_long_and_alone_is_cut_in_chunks(dims: tuple[int, ...], d: int, backwards: bool) -> None:
    i = totals(dims, d, "s32", backwards=backwards)
    assert len(emulated(i)[1].steps) == 3
    check_totals(i)


@pytest.mark.parametrize(
    ("dtype", "opcode"),
    [("bf16", "add"), ("f16", "maximum"), ("s8", "multiply"), ("u2", "minimum"), ("c64", "add"), ("pred", "or")],
)
@pytest.mark.parametrize(("dims", "d"), [((4, 40), 1), ((40, 4), 0)])
def test_every_kind_of_total(dtype: str, opcode: str, dims: tuple[int, ...], d: int) -> None:
    check_totals(totals(dims, d, dtype, opcode))


@pytest.mark.parametrize("dims", ["6,21", "200,2"])
def test_other_reducers_are_applied_in_order(dims: str) -> None:
    size = dims.split(",", maxsplit=1)[0]
    i = root_of(
        f"HloModule m\n{TWO}ENTRY main {{\nx = f32[{dims}] parameter(0)\ny = s32[{dims}] parameter(1)\n"
        "z = f32[] parameter(2)\nk = s32[] parameter(3)\n"
        f"ROOT r = (f32[{dims}], s32[{dims}]) reduce-window(x, y, z, k), "
        f"window={{size={size}x1 pad={int(size) - 1}_0x0_0}}, to_apply=op\n}}\n"
    )
    check_totals(i, ulp=0)


def test_pooling_windows_are_no_totals() -> None:
    i = root_of(
        f"HloModule m\n{BODY.format('f32', 'maximum')}ENTRY main {{\nx = f32[4,9] parameter(0)\n"
        "z = f32[] parameter(1)\n"
        "ROOT r = f32[4,7] reduce-window(x, z), window={size=1x3}, to_apply=op\n}\n"
    )
    assert not takes_cumulative(GpuKernel(new_emulated_module("m"), i, "k", gpu_target("cuda-emulated")))


@pytest.mark.parametrize(("dims", "d"), [((64, 1 << 20), 1), ((1 << 24,), 0), ((1 << 20, 64), 0), ((16384, 128), 1)])
def test_registers(dims: tuple[int, ...], d: int) -> None:
    assert_light(assemble_kernel(totals(dims, d)), 48)
