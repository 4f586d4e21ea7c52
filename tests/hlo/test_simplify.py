"""Each simplification rule on a small program: what is left of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.simplify import Simplify
from tests.compiler.checking import assert_close, program, random_arguments

FOUR = "x = f32[4] parameter(0)\n"
TABLE = "x = f32[4,6] parameter(0)\n"

#: name: entry lines, opcodes that are left besides parameters.
CASES: dict[str, tuple[str, str]] = {
    "multiply by one": (FOUR + "c = f32[] constant(1)\nb = f32[4] broadcast(c), dimensions={}\n"
                        "ROOT r = f32[4] multiply(x, b)", ""),
    "one times": (FOUR + "b = f32[4] constant({1,1,1,1})\nROOT r = f32[4] multiply(b, x)", ""),
    "divide by one": (FOUR + "c = f32[] constant(1)\nb = f32[4] broadcast(c), dimensions={}\n"
                      "ROOT r = f32[4] divide(x, b)", ""),
    "add minus zero": (FOUR + "c = f32[] constant(-0)\nb = f32[4] broadcast(c), dimensions={}\n"
                       "ROOT r = f32[4] add(x, b)", ""),
    "add plus zero keeps the sign rule": (FOUR + "c = f32[] constant(0)\nb = f32[4] broadcast(c), dimensions={}\n"
                                          "ROOT r = f32[4] add(x, b)", "add broadcast constant"),
    "subtract zero": (FOUR + "c = f32[] constant(0)\nb = f32[4] broadcast(c), dimensions={}\n"
                      "ROOT r = f32[4] subtract(x, b)", ""),
    "integer add zero": ("x = s32[4] parameter(0)\nc = s32[] constant(0)\nb = s32[4] broadcast(c), dimensions={}\n"
                         "ROOT r = s32[4] add(b, x)", ""),
    "integer times zero": ("x = s32[4] parameter(0)\nc = s32[] constant(0)\nb = s32[4] broadcast(c), dimensions={}\n"
                           "ROOT r = s32[4] multiply(b, x)", "broadcast constant"),
    "and true": ("x = pred[4] parameter(0)\nc = pred[] constant(true)\nb = pred[4] broadcast(c), dimensions={}\n"
                 "ROOT r = pred[4] and(x, b)", ""),
    "or true": ("x = pred[4] parameter(0)\nc = pred[] constant(true)\nb = pred[4] broadcast(c), dimensions={}\n"
                "ROOT r = pred[4] or(x, b)", "broadcast constant"),
    "not not": ("x = pred[4] parameter(0)\ny = pred[4] not(x)\nROOT r = pred[4] not(y)", ""),
    "negate negate": (FOUR + "y = f32[4] negate(x)\nROOT r = f32[4] negate(y)", ""),
    "select constant": (FOUR + "y = f32[4] parameter(1)\nc = pred[] constant(false)\n"
                        "b = pred[4] broadcast(c), dimensions={}\nROOT r = f32[4] select(b, y, x)", ""),
    "select same": ("x = f32[4] parameter(0)\np = pred[4] parameter(1)\nROOT r = f32[4] select(p, x, x)", ""),
    "convert to same": (FOUR + "ROOT r = f32[4] convert(x)", ""),
    "convert there and back": ("x = bf16[4] parameter(0)\ny = f32[4] convert(x)\nROOT r = bf16[4] convert(y)", ""),
    "convert that loses": (FOUR + "y = bf16[4] convert(x)\nROOT r = f32[4] convert(y)", "convert convert"),
    "convert chain": ("x = s8[4] parameter(0)\ny = s32[4] convert(x)\nROOT r = f32[4] convert(y)", "convert"),
    "sign change in between": ("x = s8[4] parameter(0)\ny = u32[4] convert(x)\nROOT r = f32[4] convert(y)",
                               "convert convert"),
    "splat arithmetic": ("x = f32[] parameter(0)\nb = f32[4] broadcast(x), dimensions={}\n"
                         "e = f32[4] exponential(b)\nROOT r = f32[4] multiply(e, b)",
                         "broadcast exponential multiply"),
    "map": (FOUR + "ROOT r = f32[4] map(x, x), dimensions={0}, to_apply=sum", "add"),
    "reduction of ones": ("x = f32[4,1,6] parameter(0)\nc = f32[] parameter(1)\n"
                          "ROOT r = f32[4,6] reduce(x, c), dimensions={1}, to_apply=sum", "add broadcast reshape"),
    "reshape of reshape": (TABLE + "y = f32[24] reshape(x)\nROOT r = f32[3,8] reshape(y)", "reshape"),
    "reshape back": (TABLE + "y = f32[24] reshape(x)\nROOT r = f32[4,6] reshape(y)", ""),
    "reshape of splat": ("x = f32[] parameter(0)\ny = f32[4] broadcast(x), dimensions={}\nROOT r = f32[2,2] reshape(y)",
                         "broadcast"),
    "reshape of constant": ("c = f32[2] constant({1, 2})\nROOT r = f32[1,2] reshape(c)", "constant"),
    "product of a transpose": (TABLE + "y = f32[4,5] parameter(1)\nt = f32[6,4] transpose(x), dimensions={1,0}\n"
                               "ROOT r = f32[6,5] dot(t, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                               "dot"),
    "product by a transpose in batches": ("x = f32[3,4,6] parameter(0)\ny = f32[3,5,6] parameter(1)\n"
                                          "t = f32[6,3,5] transpose(y), dimensions={2,0,1}\n"
                                          "ROOT r = f32[3,4,5] dot(x, t), lhs_batch_dims={0}, rhs_batch_dims={1}, "
                                          "lhs_contracting_dims={2}, rhs_contracting_dims={0}", "dot"),
    "product of a transpose that orders the result": (
        "x = f32[3,4,6] parameter(0)\ny = f32[6] parameter(1)\nt = f32[6,4,3] transpose(x), dimensions={2,1,0}\n"
        "ROOT r = f32[4,3] dot(t, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "transpose dot"),
    "product of a transpose that gathers rows": (
        "x = f32[3,4,6] parameter(0)\ny = f32[4] parameter(1)\nt = f32[4,3,6] transpose(x), dimensions={1,0,2}\n"
        "ROOT r = f32[3,6] dot(t, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "transpose dot"),
    "transpose twice": (TABLE + "y = f32[6,4] transpose(x), dimensions={1,0}\n"
                        "ROOT r = f32[4,6] transpose(y), dimensions={1,0}", ""),
    "transpose of ones": ("x = f32[1,4] parameter(0)\nROOT r = f32[4,1] transpose(x), dimensions={1,0}", "reshape"),
    "transpose of broadcast": (FOUR + "y = f32[4,6] broadcast(x), dimensions={0}\n"
                               "ROOT r = f32[6,4] transpose(y), dimensions={1,0}", "broadcast"),
    "broadcast of broadcast": (FOUR + "y = f32[4,6] broadcast(x), dimensions={0}\n"
                               "ROOT r = f32[2,4,6] broadcast(y), dimensions={1,2}", "broadcast"),
    "broadcast that only adds ones": (FOUR + "ROOT r = f32[1,4,1] broadcast(x), dimensions={1}", "reshape"),
    "broadcast of a scalar to a scalar": ("x = f32[] parameter(0)\ny = f32[] broadcast(x), dimensions={}\n"
                                          "ROOT r = f32[] negate(y)", "negate"),
    "broadcast that permutes stays": ("x = f32[3,3] parameter(0)\nROOT r = f32[3,3] broadcast(x), dimensions={1,0}",
                                      "broadcast"),
    "broadcast of added ones": (FOUR + "y = f32[4,1] reshape(x)\nROOT r = f32[4,1,6] broadcast(y), dimensions={0,1}",
                                "broadcast"),
    "slice all": (FOUR + "ROOT r = f32[4] slice(x), slice={[0:4]}", ""),
    "slice of slice": (TABLE + "y = f32[3,6] slice(x), slice={[1:4], [0:6]}\n"
                       "ROOT r = f32[1,3] slice(y), slice={[1:2], [0:6:2]}", "slice"),
    "slice of concatenate": (FOUR + "y = f32[2] parameter(1)\nc = f32[6] concatenate(x, y), dimensions={0}\n"
                             "ROOT r = f32[2] slice(c), slice={[4:6]}", ""),
    "pad nothing": (FOUR + "z = f32[] constant(0)\nROOT r = f32[4] pad(x, z), padding=0_0", ""),
    "pad that shifts stays": (FOUR + "z = f32[] constant(0)\nROOT r = f32[4] pad(x, z), padding=1_-1", "constant pad"),
    "concatenate one": (FOUR + "ROOT r = f32[4] concatenate(x), dimensions={0}", ""),
    "concatenate empty": (FOUR + "e = f32[0] parameter(1)\nROOT r = f32[4] concatenate(x, e), dimensions={0}", ""),
    "reverse of ones": ("x = f32[1,4] parameter(0)\nROOT r = f32[1,4] reverse(x), dimensions={0}", ""),
    "dynamic-slice all": (FOUR + "i = s32[] parameter(1)\nROOT r = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}",
                          ""),
    "dynamic-slice at constant": (FOUR + "i = s32[] constant(9)\n"
                                  "ROOT r = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}", "slice"),
    "update all": (FOUR + "y = f32[4] parameter(1)\ni = s32[] parameter(2)\n"
                   "ROOT r = f32[4] dynamic-update-slice(x, y, i)", ""),
    "element of tuple": (FOUR + "y = f32[4] negate(x)\nt = (f32[4], f32[4]) tuple(x, y)\n"
                         "ROOT r = f32[4] get-tuple-element(t), index=1", "negate"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    lines, left = CASES[name]
    module = program(lines)
    after = EliminateDead().run(Simplify().run(module))
    opcodes = Counter(i.opcode for i in after.entry if i.opcode != "parameter")
    assert opcodes == Counter(left.split())
    args = random_arguments(module)
    assert_close(evaluate(after, args), evaluate(module, args), 0)
    assert Simplify().run(after) is after


BRANCHES = """
double { d.x = f32[4] parameter(0)  ROOT d.r = f32[4] add(d.x, d.x) }
square { s.x = f32[4] parameter(0)  ROOT s.r = f32[4] multiply(s.x, s.x) }
"""


@pytest.mark.parametrize(
    ("selector", "left"),
    [("pred[] constant(true)", "add"), ("pred[] constant(false)", "multiply"), ("s32[] constant(7)", "multiply")],
)
def test_known_branch_is_taken(selector: str, left: str) -> None:
    attrs = (
        "branch_computations={double, square}"
        if selector.startswith("s32")
        else "true_computation=double, false_computation=square"
    )
    lines = f"x = f32[4] parameter(0)\nc = {selector}\nROOT r = f32[4] conditional(c, x, x), {attrs}"
    after = EliminateDead().run(Simplify().run(program(lines, BRANCHES)))
    assert [i.opcode for i in after.entry] == ["parameter", left]
    assert len(after.computations) == 1


def test_negative_zero_survives() -> None:
    module = program("x = f32[1] parameter(0)\nz = f32[1] constant({0})\nROOT r = f32[1] add(x, z)")
    args = [np.array([-0.0], np.float32)]
    assert not np.signbit(evaluate(Simplify().run(module), args)[0][0])
