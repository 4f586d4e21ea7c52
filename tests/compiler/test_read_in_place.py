"""Blocks of arguments that nobody overwrites are read where they lie; all other slices are copies."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.lower.fuse.fusion_rules import block_offset, is_block
from shardc.compiler.lower.lowered import KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.config import Config
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.types import array_shape
from tests.compiler.checking import SUM, check, program, random_arguments

STACK = """
  x = f32[3,7] parameter(0)
  ws = f32[4,7,7] parameter(1)
  w0 = f32[1,7,7] slice(ws), slice={[CUT], [0:7], [0:7]}
  m0 = f32[7,7] reshape(w0)
  ROOT y = f32[3,7] dot(x, m0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def opcodes(module: Module) -> list[str]:
    steps = lower(module, Config(check=True)).steps
    return [s.instruction.opcode for s in leaf_steps(steps) if isinstance(s, KernelStep)]


@pytest.mark.parametrize("cut", ["0:1", "2:3", "3:4"])
def test_a_layer_of_stacked_weights_is_not_copied(cut: str) -> None:
    module = program(STACK.replace("CUT", cut))
    assert "slice" not in opcodes(module)
    assert len(opcodes(module)) == 1
    check(module)


def test_what_a_result_overwrites_is_copied_first() -> None:
    lines = STACK.replace("CUT", "1:2").replace("ROOT y", "y") + (
        "  n = f32[4,7,7] negate(ws)\n  ROOT t = (f32[3,7], f32[4,7,7]) tuple(y, n)"
    )
    module = program(lines, header=", input_output_alias={ {1}: (1, {}, may-alias) }")
    assert len(opcodes(module)) == 3
    check(module)


def test_a_block_as_result_and_in_a_loop() -> None:
    loop = """
body {
  b.s = (s32[], f32[2,3], f32[6,3]) parameter(0)
  b.i = s32[] get-tuple-element(b.s), index=0
  b.x = f32[2,3] get-tuple-element(b.s), index=1
  b.w = f32[6,3] get-tuple-element(b.s), index=2
  b.one = s32[] constant(1)
  b.n = s32[] add(b.i, b.one)
  b.m = f32[3,3] slice(b.w), slice={[2:5], [0:3]}
  b.y = f32[2,3] dot(b.x, b.m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b.r = (s32[], f32[2,3], f32[6,3]) tuple(b.n, b.y, b.w)
}

condition {
  c.s = (s32[], f32[2,3], f32[6,3]) parameter(0)
  c.i = s32[] get-tuple-element(c.s), index=0
  c.n = s32[] constant(40)
  ROOT c.p = pred[] compare(c.i, c.n), direction=LT
}
"""
    lines = """
  x = f32[2,3] parameter(0)
  w = f32[6,3] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[2,3], f32[6,3]) tuple(zero, x, w)
  loop = (s32[], f32[2,3], f32[6,3]) while(init), condition=condition, body=body
  y = f32[2,3] get-tuple-element(loop), index=1
  part = f32[1,3] slice(w), slice={[5:6], [0:3]}
  ROOT t = (f32[2,3], f32[1,3]) tuple(y, part)
"""
    module = program(lines, before=SUM + loop)
    assert "slice" not in opcodes(module)
    check(module, [a * np.float32(0.3) for a in random_arguments(module)])


@pytest.mark.parametrize(
    ("dims", "cut", "offset"),
    [
        ((4, 5), [(1, 3, 1), (0, 5, 1)], 20),
        ((4, 5), [(2, 3, 1), (1, 4, 1)], 44),
        ((4, 5), [(0, 2, 1), (0, 4, 1)], None),
        ((4, 5), [(0, 4, 2), (0, 5, 1)], None),
        ((2, 3, 4), [(1, 2, 1), (1, 3, 1), (0, 4, 1)], 64),
        ((2, 3, 4), [(0, 2, 1), (1, 3, 1), (0, 4, 1)], None),
        ((5,), [(1, 4, 1)], 4),
    ],
)
def test_which_slices_are_blocks(dims: tuple[int, ...], cut: list[tuple[int, int, int]], offset: int | None) -> None:
    b = Builder("m")
    i = b.add("slice", b.parameter(array_shape("f32", *dims)), slice=tuple(cut))
    assert is_block(i) == (offset is not None)
    if offset is not None:
        assert block_offset(i) == offset
