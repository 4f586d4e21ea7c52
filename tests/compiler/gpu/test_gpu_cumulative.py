"""Running totals on GPUs: along memory and across it, both ways, in chunks where little is side by side."""

from __future__ import annotations

import pytest

from shardc.hlo.ir.ir import Instruction
from tests.compiler.gpu.gpu_runner import assemble_kernel, assert_light, check_gpu, emulated
from tests.compiler.gpu.reduction_texts import emitter_name, root_of, totals
from tests.compiler.kernel_runner import random

TWO = """
op { a = f32[] parameter(0)
  n = s32[] parameter(1)
  b = f32[] parameter(2)
  m = s32[] parameter(3)
  c = f32[] subtract(b, a)
  k = s32[] subtract(n, m)
  ROOT r = (f32[], s32[]) tuple(c, k) }
"""


def check_totals(i: Instruction, ulp: float = 64) -> None:
    assert emitter_name(i) == "cumulative"
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
        "HloModule m\nop { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT r = f32[] maximum(a, b) }\n"
        "ENTRY main {\nx = f32[4,9] parameter(0)\nz = f32[] parameter(1)\n"
        "ROOT r = f32[4,7] reduce-window(x, z), window={size=1x3}, to_apply=op\n}\n"
    )
    assert emitter_name(i) == "loop"


@pytest.mark.parametrize(("dims", "d"), [((64, 1 << 20), 1), ((1 << 24,), 0), ((1 << 20, 64), 0), ((16384, 128), 1)])
def test_registers(dims: tuple[int, ...], d: int) -> None:
    assert_light(assemble_kernel(totals(dims, d)), 48)
