"""Transposes beside convolutions, and turned kernels, become labels; what others read stays."""

from __future__ import annotations

import pytest

from shardc.compiler.lower.simplify.relabel_convolutions import RelabelConvolutions
from shardc.hlo.evaluate import evaluate
from tests.compiler.checking import assert_close, check, program, random_arguments

CASES = {
    "input": (
        "x = f32[2,3,9,8] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "t = f32[2,9,8,3] transpose(x), dimensions={0,2,3,1}\n"
        "ROOT c = f32[2,7,7,4] convolution(t, k), window={size=3x2}, dim_labels=b01f_01io->b01f",
        ["convolution"],
    ),
    "kernel": (
        "x = f32[2,9,8,3] parameter(0)\nk = f32[4,3,3,2] parameter(1)\n"
        "t = f32[3,2,3,4] transpose(k), dimensions={2,3,1,0}\n"
        "ROOT c = f32[2,7,7,4] convolution(x, t), window={size=3x2}, dim_labels=b01f_01io->b01f",
        ["convolution"],
    ),
    "result": (
        "x = f32[2,9,8,3] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "c = f32[2,7,7,4] convolution(x, k), window={size=3x2}, dim_labels=b01f_01io->b01f\n"
        "ROOT t = f32[4,7,2,7] transpose(c), dimensions={3,2,0,1}",
        ["convolution"],
    ),
    "turned along one dimension": (
        "x = f32[2,9,8,3] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "r = f32[3,2,3,4] reverse(k), dimensions={1}\n"
        "ROOT c = f32[2,7,7,4] convolution(x, r), window={size=3x2}, dim_labels=b01f_01io->b01f",
        ["convolution"],
    ),
    "turned twice": (
        "x = f32[2,9,8,3] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "r = f32[3,2,3,4] reverse(k), dimensions={0,1}\n"
        "ROOT c = f32[2,7,7,4] convolution(x, r), window={size=3x2 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f",
        ["convolution"],
    ),
    "features turned": (
        "x = f32[2,9,8,3] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "r = f32[3,2,3,4] reverse(k), dimensions={1,2}\n"
        "ROOT c = f32[2,7,7,4] convolution(x, r), window={size=3x2}, dim_labels=b01f_01io->b01f",
        ["reverse", "convolution"],
    ),
    "read by others too": (
        "x = f32[2,3,9,8] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "t = f32[2,9,8,3] transpose(x), dimensions={0,2,3,1}\n"
        "c = f32[2,7,7,4] convolution(t, k), window={size=3x2}, dim_labels=b01f_01io->b01f\n"
        "ROOT r = (f32[2,9,8,3], f32[2,7,7,4]) tuple(t, c)",
        ["transpose", "convolution", "tuple"],
    ),
    "groups": (
        "x = f32[9,2,8,6] parameter(0)\nk = f32[3,2,3,4] parameter(1)\n"
        "t = f32[2,9,8,6] transpose(x), dimensions={1,0,2,3}\nr = f32[3,2,3,4] reverse(k), dimensions={0,1}\n"
        "c = f32[2,7,7,4] convolution(t, r), window={size=3x2}, dim_labels=b01f_01io->b01f, feature_group_count=2\n"
        "ROOT w = f32[2,4,7,7] transpose(c), dimensions={0,3,1,2}",
        ["convolution"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_relabelled(name: str) -> None:
    lines, left = CASES[name]
    module = program(lines)
    after = RelabelConvolutions().run(module)
    assert [i.opcode for i in after.entry if i.opcode != "parameter"] == left
    arguments = random_arguments(module)
    assert_close(evaluate(after, arguments), evaluate(module, arguments))
    check(after)
