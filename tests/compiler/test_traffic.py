"""Bytes and operations of steps: what shapes say."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.lowered import BufferCopy, KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.compiler.lower.schedule.step_traffic import Traffic, step_traffic
from shardc.costs.kernels.traffic import instruction_traffic
from tests.compiler.checking import program

BIG = "x = f32[100,50] parameter(0)\n"

#: Entry lines and the traffic of the only kernel.
CASES: dict[str, tuple[str, str, Traffic]] = {
    "elementwise": (
        BIG + "y = f32[100,50] multiply(x, x)\nROOT r = f32[100,50] tanh(y)", "", Traffic(20000, 20000, 10000),
    ),
    "broadcast operand": (
        BIG + "v = f32[50] parameter(1)\nb = f32[100,50] broadcast(v), dimensions={1}\n"
        "ROOT r = f32[100,50] add(x, b)", "", Traffic(20200, 20000, 5000),
    ),
    "slice in a fusion": (
        BIG + "s = f32[10,50] slice(x), slice={[5:15], [0:50]}\nROOT r = f32[10,50] tanh(s)", "",
        Traffic(2000, 2000, 500),
    ),
    "a part of a part in a fusion": (
        BIG + "i = s32[] parameter(1)\nj = s32[] parameter(2)\nz = s32[] constant(0)\n"
        "a = f32[10,50] dynamic-slice(x, i, z), dynamic_slice_sizes={10,50}\n"
        "b = f32[10,5] dynamic-slice(a, z, j), dynamic_slice_sizes={10,5}\nROOT r = f32[10,5] tanh(b)", "",
        Traffic(200, 200, 50),
    ),
    "a part behind a transpose": (
        BIG + "t = f32[50,100] transpose(x), dimensions={1,0}\n"
        "s = f32[5,100] slice(t), slice={[5:10], [0:100]}\nROOT r = f32[5,100] tanh(s)", "",
        Traffic(2000, 2000, 500),
    ),
    "a part behind a transpose, and all of it": (
        BIG + "t = f32[50,100] transpose(x), dimensions={1,0}\ns = f32[5,100] slice(t), slice={[5:10], [0:100]}\n"
        "z = f32[] constant(0)\np = f32[50,100] pad(s, z), padding=0_45x0_0\nROOT r = f32[50,100] add(t, p)", "",
        Traffic(20000, 20000, 5000),
    ),
    "gathered rows": (
        BIG + "i = s32[3,1] parameter(1)\nROOT g = f32[3,50] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,50}", "", Traffic(600 + 12, 600),
    ),
    "update in place": (
        BIG + "u = f32[2,50] parameter(1)\ni = s32[] parameter(2)\nz = s32[] constant(0)\n"
        "ROOT r = f32[100,50] dynamic-update-slice(x, u, i, z)", ", input_output_alias={ {}: (0, {}, must-alias) }",
        Traffic(408, 400),
    ),
    "product": (
        BIG + "w = f32[50,30] parameter(1)\nROOT d = f32[100,30] dot(x, w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}", "", Traffic(26000, 12000, 2 * 100 * 30 * 50),
    ),
    "reduction": (
        BIG + "z = f32[] constant(0)\nROOT r = f32[100] reduce(x, z), dimensions={1}, to_apply=sum", "",
        Traffic(20000, 400, 5000),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    lines, header, wanted = CASES[name]
    lowered = lower(program(lines, header=header))
    (kernel,) = (s for s in leaf_steps(lowered.steps) if isinstance(s, KernelStep))
    found = step_traffic(kernel, lowered.plan)
    # Scalars that a kernel reads beside (initial values, indices) do not matter.
    assert abs(found.read - wanted.read) <= 8
    assert (found.written, found.flops) == (wanted.written, wanted.flops)


def test_copies() -> None:
    lowered = lower(program("x = f32[64] parameter(0)\nROOT t = (f32[64], f32[64]) tuple(x, x)"))
    found = [step_traffic(s, lowered.plan) for s in leaf_steps(lowered.steps) if isinstance(s, BufferCopy)]
    assert found == [Traffic(256, 256)] * 2


def test_an_operand_that_is_read_twice_comes_from_memory_once() -> None:
    module = program(BIG + "ROOT r = f32[] dot(x, x), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}")
    assert instruction_traffic(module.entry.root) == Traffic(20000, 4)
