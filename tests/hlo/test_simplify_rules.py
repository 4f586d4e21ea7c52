"""Simplification rules on small programs: what is left, and the same bits for NaNs, infinities and denormals."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.hlo.verify import verify
from tests.compiler.checking import SUM, program
from tests.compiler.property_support import difference, wild

X = "x = f32[4,6] parameter(0)\n"
Y = X + "y = f32[4,6] parameter(1)\n"
N = "x = s32[4,6] parameter(0)\n"
P = "p = pred[4,6] parameter(0)\na = f32[4,6] parameter(1)\nb = f32[4,6] parameter(2)\nc = f32[4,6] parameter(3)\n"


def splat(name: str, value: object, shape: str = "f32[4,6]") -> str:
    scalar = shape[: shape.index("[")] + "[]"
    return f"{name}.s = {scalar} constant({value})\n{name} = {shape} broadcast({name}.s), dimensions={{}}\n"


GATHER = "offset_dims={0}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=0, slice_sizes={1,3}"

#: Reducers that some cases use.
REDUCERS = (
    SUM
    + """
last { last.a = f32[] parameter(0)  ROOT last.b = f32[] parameter(1) }
isum { isum.a = s32[] parameter(0)  isum.b = s32[] parameter(1)  ROOT isum.c = s32[] add(isum.a, isum.b) }
"""
)

#: name: entry lines, opcodes that are left besides parameters.
CASES: dict[str, tuple[str, str]] = {
    # comparisons and selects
    "less than itself": (X + "ROOT r = pred[4,6] compare(x, x), direction=LT", "constant broadcast"),
    "equal to itself may be NaN": (X + "ROOT r = pred[4,6] compare(x, x), direction=EQ", "compare"),
    "integer equal to itself": (N + "ROOT r = pred[4,6] compare(x, x), direction=LE", "constant broadcast"),
    "count below its size": ("i = s32[4,6] iota(), iota_dimension=1\n" + splat("c", 6, "s32[4,6]")
                             + "ROOT r = pred[4,6] compare(i, c), direction=LT", "constant broadcast"),
    "count below less": ("i = s32[4,6] iota(), iota_dimension=1\n" + splat("c", 5, "s32[4,6]")
                         + "ROOT r = pred[4,6] compare(i, c), direction=LT", "iota constant broadcast compare"),
    "constant above a count": ("i = s32[4,6] iota(), iota_dimension=0\n" + splat("c", 4, "s32[4,6]")
                               + "ROOT r = pred[4,6] compare(c, i), direction=LE", "constant broadcast"),
    "unsigned below zero": ("x = u8[4] parameter(0)\n" + splat("c", 0, "u8[4]")
                            + "ROOT r = pred[4] compare(x, c), direction=LT", "constant broadcast"),
    "unsigned not below zero": ("x = u8[4] parameter(0)\n" + splat("c", 0, "u8[4]")
                                + "ROOT r = pred[4] compare(x, c), direction=GE", "constant broadcast"),
    "never equal": ("i = s32[4] iota(), iota_dimension=0\n" + splat("c", 9, "s32[4]")
                    + "ROOT r = pred[4] compare(i, c), direction=EQ", "constant broadcast"),
    "not equal": (Y + "e = pred[4,6] compare(x, y), direction=EQ\nROOT r = pred[4,6] not(e)", "compare"),
    "not less with NaNs": (Y + "e = pred[4,6] compare(x, y), direction=LT\nROOT r = pred[4,6] not(e)", "compare not"),
    "not less of integers": (N + "y = s32[4,6] parameter(1)\ne = pred[4,6] compare(x, y), direction=LT\n"
                             "ROOT r = pred[4,6] not(e)", "compare"),
    "select by not": (P + "q = pred[4,6] not(p)\nROOT r = f32[4,6] select(q, a, b)", "select"),
    "select of truths": ("p = pred[4,6] parameter(0)\n" + splat("t", "true", "pred[4,6]")
                         + splat("f", "false", "pred[4,6]") + "ROOT r = pred[4,6] select(p, t, f)", ""),
    "select of lies": ("p = pred[4,6] parameter(0)\n" + splat("t", "true", "pred[4,6]")
                       + splat("f", "false", "pred[4,6]") + "ROOT r = pred[4,6] select(p, f, t)", "not"),
    "select in select": (P + "s = f32[4,6] select(p, a, b)\nROOT r = f32[4,6] select(p, s, c)", "select"),
    "select in the other": (P + "s = f32[4,6] select(p, a, b)\nROOT r = f32[4,6] select(p, c, s)", "select"),
    # arithmetic
    "integer minus itself": (N + "ROOT r = s32[4,6] subtract(x, x)", "constant broadcast"),
    "float minus itself may be NaN": (X + "ROOT r = f32[4,6] subtract(x, x)", "subtract"),
    "larger of the same": (X + "ROOT r = f32[4,6] maximum(x, x)", ""),
    "sums of integer constants": (N + splat("c", 2147483647, "s32[4,6]") + splat("d", 7, "s32[4,6]")
                                  + "y = s32[4,6] add(x, c)\nROOT r = s32[4,6] add(d, y)", "constant broadcast add"),
    "products of integer constants": ("x = u8[5] parameter(0)\n" + splat("c", 77, "u8[5]") + splat("d", 9, "u8[5]")
                                      + "y = u8[5] multiply(c, x)\nROOT r = u8[5] multiply(y, d)",
                                      "constant broadcast multiply"),
    "float sums stay": (X + splat("c", 2) + splat("d", 7) + "y = f32[4,6] add(x, c)\nROOT r = f32[4,6] add(y, d)",
                        "constant broadcast constant broadcast add add"),
    "add negated": (Y + "n = f32[4,6] negate(y)\nROOT r = f32[4,6] add(n, x)", "subtract"),
    "subtract negated": (Y + "n = f32[4,6] negate(y)\nROOT r = f32[4,6] subtract(x, n)", "add"),
    "both negated": (Y + "n = f32[4,6] negate(y)\nm = f32[4,6] negate(x)\nROOT r = f32[4,6] divide(m, n)", "divide"),
    "magnitude of negated": (X + "n = f32[4,6] negate(x)\nROOT r = f32[4,6] abs(n)", "abs"),
    "magnitude twice": (X + "n = f32[4,6] abs(x)\nROOT r = f32[4,6] abs(n)", "abs"),
    "divide by 8": (X + splat("c", 8) + "ROOT r = f32[4,6] divide(x, c)", "constant broadcast multiply"),
    "divide by -0.25": (X + splat("c", -0.25) + "ROOT r = f32[4,6] divide(x, c)", "constant broadcast multiply"),
    "divide by 3 stays": (X + splat("c", 3) + "ROOT r = f32[4,6] divide(x, c)", "constant broadcast divide"),
    "divide by a denormal stays": (X + splat("c", "1e-45") + "ROOT r = f32[4,6] divide(x, c)",
                                   "constant broadcast divide"),
    "divide integer by 8 stays": (N + splat("c", 8, "s32[4,6]") + "ROOT r = s32[4,6] divide(x, c)",
                                  "constant broadcast divide"),
    "square": (X + splat("c", 2) + "ROOT r = f32[4,6] power(x, c)", "multiply"),
    "power of one": (X + splat("c", 1) + "ROOT r = f32[4,6] power(x, c)", ""),
    "real part of complex": (Y + "z = c64[4,6] complex(x, y)\nROOT r = f32[4,6] real(z)", ""),
    "imaginary part of complex": (Y + "z = c64[4,6] complex(x, y)\nROOT r = f32[4,6] imag(z)", ""),
    "complex of parts": ("z = c64[4] parameter(0)\na = f32[4] real(z)\nb = f32[4] imag(z)\n"
                         "ROOT r = c64[4] complex(a, b)", ""),
    "count in another type": ("i = s32[4,6] iota(), iota_dimension=1\nROOT r = f32[4,6] convert(i)", "iota"),
    "count too far for the type": ("i = s32[200] iota(), iota_dimension=0\nROOT r = s8[200] convert(i)",
                                   "iota convert"),
    "computed before it is broadcast": (
        "x = f32[4] parameter(0)\ny = f32[4] parameter(1)\na = f32[4,6] broadcast(x), dimensions={0}\n"
        "b = f32[4,6] broadcast(y), dimensions={0}\ns = f32[] parameter(2)\nc = f32[4,6] broadcast(s), dimensions={}\n"
        "d = f32[4,6] add(a, b)\nROOT r = f32[4,6] multiply(d, c)", "add broadcast multiply broadcast"),
    "broadcast in different ways": (
        "x = f32[4] parameter(0)\ny = f32[6] parameter(1)\na = f32[4,6] broadcast(x), dimensions={0}\n"
        "b = f32[4,6] broadcast(y), dimensions={1}\nROOT r = f32[4,6] add(a, b)", "broadcast broadcast add"),
    # slices, pads, joins
    "part of a broadcast": ("x = f32[6] parameter(0)\nb = f32[4,6] broadcast(x), dimensions={1}\n"
                            "ROOT r = f32[2,3] slice(b), slice={[1:3], [0:6:2]}", "slice broadcast"),
    "part of the repeated": ("x = f32[6] parameter(0)\nb = f32[4,6] broadcast(x), dimensions={1}\n"
                             "ROOT r = f32[2,6] slice(b), slice={[1:3], [0:6]}", "broadcast"),
    "part of a transpose": (X + "t = f32[6,4] transpose(x), dimensions={1,0}\n"
                            "ROOT r = f32[2,3] slice(t), slice={[1:5:2], [1:4]}", "slice transpose"),
    "inside of padding": (X + "z = f32[] constant(3)\nq = f32[9,6] pad(x, z), padding=2_3x0_0\n"
                          "ROOT r = f32[2,6] slice(q), slice={[3:5], [0:6]}", "slice"),
    "all inside of padding": (X + "z = f32[] constant(3)\nq = f32[9,6] pad(x, z), padding=2_3x0_0\n"
                              "ROOT r = f32[4,6] slice(q), slice={[2:6], [0:6]}", ""),
    "outside in padding": (X + "z = f32[] constant(3)\nq = f32[9,6] pad(x, z), padding=2_3x0_0\n"
                           "ROOT r = f32[2,6] slice(q), slice={[7:9], [0:6]}", "constant broadcast"),
    "across the edge of padding": (X + "z = f32[] constant(3)\nq = f32[9,6] pad(x, z), padding=2_3x0_0\n"
                                   "ROOT r = f32[3,6] slice(q), slice={[5:8], [0:6]}", "constant pad slice"),
    "holes of padding": (X + "z = f32[] constant(3)\nq = f32[7,6] pad(x, z), padding=0_0_1x0_0\n"
                         "ROOT r = f32[2,6] slice(q), slice={[0:2], [0:6]}", "constant pad slice"),
    "padding twice": (X + "z = f32[] parameter(1)\nq = f32[7,6] pad(x, z), padding=1_2x0_0\n"
                      "ROOT r = f32[7,9] pad(q, z), padding=0_0x2_1", "pad"),
    "padding twice with other values": (X + "z = f32[] parameter(1)\ny = f32[] parameter(2)\n"
                                        "q = f32[7,6] pad(x, z), padding=1_2x0_0\n"
                                        "ROOT r = f32[7,9] pad(q, y), padding=0_0x2_1", "pad pad"),
    "padding that cuts": (X + "z = f32[] constant(3)\nROOT r = f32[3,4] pad(x, z), padding=-1_0x0_-2", "slice"),
    "padding of the same": ("z = f32[] parameter(0)\nb = f32[4] broadcast(z), dimensions={}\n"
                            "ROOT r = f32[7] pad(b, z), padding=1_2", "broadcast"),
    "join of joins": ("x = f32[2] parameter(0)\ny = f32[3] parameter(1)\nc = f32[5] concatenate(x, y), dimensions={0}\n"
                      "ROOT r = f32[7] concatenate(c, x), dimensions={0}", "concatenate"),
    "join along another dimension": ("x = f32[2,2] parameter(0)\nc = f32[4,2] concatenate(x, x), dimensions={0}\n"
                                     "ROOT r = f32[4,4] concatenate(c, c), dimensions={1}", "concatenate concatenate"),
    "join of equal values": ("z = f32[] parameter(0)\nx = f32[2] parameter(1)\na = f32[3] broadcast(z), dimensions={}\n"
                             "b = f32[4] broadcast(z), dimensions={}\nROOT r = f32[9] concatenate(x, a, b), "
                             "dimensions={0}", "broadcast concatenate"),
    "join of neighbours": (X + "a = f32[4,2] slice(x), slice={[0:4], [1:3]}\n"
                                  "b = f32[4,3] slice(x), slice={[0:4], [3:6]}\n"
                           "ROOT r = f32[4,5] concatenate(a, b), dimensions={1}", "slice"),
    "join of all parts": (X + "a = f32[1,6] slice(x), slice={[0:1], [0:6]}\n"
                                  "b = f32[3,6] slice(x), slice={[1:4], [0:6]}\n"
                          "ROOT r = f32[4,6] concatenate(a, b), dimensions={0}", ""),
    "join of parts that are apart": (X + "a = f32[1,6] slice(x), slice={[0:1], [0:6]}\n"
                                     "b = f32[2,6] slice(x), slice={[2:4], [0:6]}\n"
                                     "ROOT r = f32[3,6] concatenate(a, b), dimensions={0}", "slice slice concatenate"),
    "reversed twice": (X + "a = f32[4,6] reverse(x), dimensions={0,1}\nROOT r = f32[4,6] reverse(a), dimensions={1}",
                       "reverse"),
    "reversed and back": (X + "a = f32[4,6] reverse(x), dimensions={0}\n"
                                  "ROOT r = f32[4,6] reverse(a), dimensions={0}", ""),
    "reversed repetition": ("x = f32[6] parameter(0)\nb = f32[4,6] broadcast(x), dimensions={1}\n"
                            "ROOT r = f32[4,6] reverse(b), dimensions={0}", "broadcast"),
    # counts and reshapes of broadcasts
    "count of one": ("ROOT r = s32[1,6] iota(), iota_dimension=0", "constant broadcast"),
    "transposed count": ("i = s32[4,6] iota(), iota_dimension=1\nROOT r = s32[6,4] transpose(i), dimensions={1,0}",
                         "iota"),
    "broadcast count": ("i = s32[6] iota(), iota_dimension=0\n"
                                  "ROOT r = s32[4,6,2] broadcast(i), dimensions={1}", "iota"),
    "reshaped count": ("i = s32[2,3,4] iota(), iota_dimension=2\nROOT r = s32[6,4] reshape(i)", "iota"),
    "count that is cut": ("i = s32[6,4] iota(), iota_dimension=0\nROOT r = s32[2,3,4] reshape(i)", "iota reshape"),
    "reshaped repetition": ("x = f32[5] parameter(0)\nb = f32[2,3,5] broadcast(x), dimensions={2}\n"
                            "ROOT r = f32[6,5] reshape(b)", "broadcast"),
    "reshaped values": ("x = f32[3,5] parameter(0)\nb = f32[2,3,5] broadcast(x), dimensions={1,2}\n"
                        "ROOT r = f32[6,5] reshape(b)", "broadcast reshape"),
    # dynamic slices, gathers, scatters
    "dynamic slice of what repeats": (
        "x = f32[6] parameter(0)\nb = f32[4,6] broadcast(x), dimensions={1}\ni = s32[] parameter(1)\n"
        "j = s32[] parameter(2)\nROOT r = f32[1,6] dynamic-slice(b, i, j), dynamic_slice_sizes={1,6}", "reshape"),
    "dynamic slice before the broadcast": (
        "x = f32[6] parameter(0)\nb = f32[4,6] broadcast(x), dimensions={1}\ni = s32[] parameter(1)\n"
        "j = s32[] parameter(2)\nROOT r = f32[4,2] dynamic-slice(b, i, j), dynamic_slice_sizes={4,2}",
        "dynamic-slice broadcast"),
    "element of a count": ("c = f32[9] parameter(1)\nk = s32[9] iota(), iota_dimension=0\ni = s32[] parameter(0)\n"
                           "ROOT r = s32[1] dynamic-slice(k, i), dynamic_slice_sizes={1}",
                           "constant constant clamp broadcast"),
    "element of a count in another type": (
        "k = u16[9] iota(), iota_dimension=0\ni = s32[] parameter(0)\n"
        "ROOT r = u16[1] dynamic-slice(k, i), dynamic_slice_sizes={1}", "constant constant clamp convert broadcast"),
    "read what was written": (X + "u = f32[1,6] parameter(1)\ni = s32[] parameter(2)\nj = s32[] constant(0)\n"
                              "w = f32[4,6] dynamic-update-slice(x, u, i, j)\n"
                              "ROOT r = f32[1,6] dynamic-slice(w, i, j), dynamic_slice_sizes={1,6}", ""),
    "write what was read": (X + "i = s32[] parameter(1)\nj = s32[] parameter(2)\n"
                            "d = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}\n"
                            "ROOT r = f32[4,6] dynamic-update-slice(x, d, i, j)", ""),
    "write all parts": (
        X + "u = f32[2,6] parameter(1)\nv = f32[1,6] parameter(2)\nw = f32[1,6] parameter(3)\nj = s32[] parameter(4)\n"
        "a = s32[] constant(2)\nb = s32[] constant(9)\nc = s32[] constant(0)\n"
        "p = f32[4,6] dynamic-update-slice(x, w, a, j)\nq = f32[4,6] dynamic-update-slice(p, v, a, j)\n"
        "s = f32[4,6] dynamic-update-slice(q, u, c, j)\nROOT r = f32[4,6] dynamic-update-slice(s, w, b, j)",
        "concatenate"),
    "write some parts": (
        X + "u = f32[2,6] parameter(1)\nj = s32[] parameter(2)\na = s32[] constant(0)\nb = s32[] constant(1)\n"
        "p = f32[4,6] dynamic-update-slice(x, u, a, j)\nROOT r = f32[4,6] dynamic-update-slice(p, u, b, j)",
        "constant dynamic-update-slice constant dynamic-update-slice"),
    "gather at one place": (X + f"i = s32[2] parameter(1)\nROOT r = f32[3] gather(x, i), {GATHER}",
                            "dynamic-slice reshape reshape reshape slice slice"),
    "gather of equal values": ("z = f32[] parameter(0)\nx = f32[4,6] broadcast(z), dimensions={}\n"
                               f"i = s32[2] parameter(1)\nROOT r = f32[3] gather(x, i), {GATHER}", "broadcast"),
    "scatter of nothing": (X + "i = s32[0,1] parameter(1)\nu = f32[0,6] parameter(2)\n"
                           "ROOT r = f32[4,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
                           "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum", ""),
    "gather of neighbours": (X + "i = s32[2,1] constant({{1},{2}})\nROOT r = f32[6,2] gather(x, i), offset_dims={0}, "
                             "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}",
                             "slice transpose"),
    "gather of every other column": (
        X + "i = s32[3] constant({1, 3, 5})\nROOT r = f32[4,3] gather(x, i), offset_dims={0}, "
        "collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={4,1}", "slice"),
    "gather of all rows": (
        X + "i = s32[4] iota(), iota_dimension=0\nj = s32[4,1] reshape(i)\nROOT r = f32[4,6] gather(x, j), "
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}", ""),
    "gather beyond the end stays": (
        X + "i = s32[2] constant({3, 4})\nROOT r = f32[2,6] gather(x, i), offset_dims={1}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}", "constant gather"),
    "gather backwards stays": (
        X + "i = s32[2] constant({3, 2})\nROOT r = f32[2,6] gather(x, i), offset_dims={1}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}", "constant gather"),
    "write at one place": (
        X + "i = s32[2] constant({2, 1})\nu = f32[3] parameter(1)\nROOT r = f32[4,6] scatter(x, i, u), "
        "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=0, "
        "to_apply=last", "reshape constant constant dynamic-update-slice"),
    "add at one place": (
        X + "i = s32[1] constant({2})\nu = f32[6] parameter(1)\nROOT r = f32[4,6] scatter(x, i, u), "
        "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
        "to_apply=sum", "reshape constant constant slice add dynamic-update-slice"),
    "write beyond the end stays": (
        X + "i = s32[1] constant({4})\nu = f32[6] parameter(1)\nROOT r = f32[4,6] scatter(x, i, u), "
        "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
        "to_apply=sum", "constant broadcast scatter"),
    # reductions
    "sum of equal integers": (
        "x = s32[4] parameter(0)\nz = s32[] parameter(1)\nb = s32[4,6] broadcast(x), dimensions={0}\n"
        "ROOT r = s32[4] reduce(b, z), dimensions={1}, to_apply=isum",
        "constant broadcast multiply broadcast add"),
    "reduce one": ("x = f32[4,1,6] parameter(0)\nz = f32[] parameter(1)\n"
                   "ROOT r = f32[4,6] reduce(x, z), dimensions={1}, to_apply=sum", "broadcast reshape add"),
    "reduce nothing": ("x = f32[4,0] parameter(0)\nz = f32[] parameter(1)\n"
                       "ROOT r = f32[4] reduce(x, z), dimensions={1}, to_apply=sum", "broadcast"),
    "reduce a transpose": (
        "x = f32[2,3,4] parameter(0)\nz = f32[] parameter(1)\nt = f32[4,2,3] transpose(x), dimensions={2,0,1}\n"
        "ROOT r = f32[4,2] reduce(t, z), dimensions={2}, to_apply=max", "reduce transpose"),
    "reduce a transpose to order": (
        "x = f32[2,3,4] parameter(0)\nz = f32[] parameter(1)\nt = f32[4,2,3] transpose(x), dimensions={2,0,1}\n"
        "ROOT r = f32[2,3] reduce(t, z), dimensions={0}, to_apply=max", "reduce"),
    "reduce with ones": (
        "x = f32[4,6] parameter(0)\nz = f32[] parameter(1)\nt = f32[4,1,6,1] reshape(x)\n"
        "ROOT r = f32[4,1] reduce(t, z), dimensions={1,2}, to_apply=max", "reduce reshape"),
    "largest of equal values": (
        "x = f32[4] parameter(0)\nz = f32[] parameter(1)\nb = f32[4,6] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[4] reduce(b, z), dimensions={1}, to_apply=max", "broadcast maximum"),
    "sum of equal values stays": (
        "x = f32[4] parameter(0)\nz = f32[] parameter(1)\nb = f32[4,6] broadcast(x), dimensions={0}\n"
        "ROOT r = f32[4] reduce(b, z), dimensions={1}, to_apply=sum", "broadcast reduce"),
    # products
    "outer product": ("x = f32[4,1] parameter(0)\ny = f32[1,6] parameter(1)\n"
                      "ROOT r = f32[4,6] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                      "reshape broadcast reshape broadcast multiply"),
    "product over nothing": ("x = f32[4] parameter(0)\ny = f32[6] parameter(1)\nROOT r = f32[4,6] dot(x, y)",
                             "broadcast broadcast multiply"),
    "batched outer product": (
        "x = f32[4,3] parameter(0)\ny = f32[5,3] parameter(1)\n"
        "ROOT r = f32[3,4,5] dot(x, y), lhs_batch_dims={1}, rhs_batch_dims={1}",
        "transpose transpose broadcast broadcast multiply"),
    "sum of no products": ("x = f32[4,0] parameter(0)\ny = f32[0,6] parameter(1)\n"
                           "ROOT r = f32[4,6] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                           "constant broadcast"),
}  # fmt: skip


def simplified(module: Module) -> Module:
    after = EliminateDead().run(Simplify().run(module))
    verify(after)
    return after


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    lines, left = CASES[name]
    module = program(lines, REDUCERS)
    after = simplified(module)
    opcodes = Counter(i.opcode for i in after.entry if i.opcode != "parameter")
    assert opcodes == Counter(left.split())
    assert Simplify().run(after) is after
    for seed in range(4):
        args = [wild(p.shape, 7 * seed + n) for n, p in enumerate(module.parameters)]
        for got, wanted in zip(evaluate(after, args), evaluate(module, args), strict=True):
            assert not difference(got, wanted, 0)


def test_constants_are_folded_to_a_fixed_point() -> None:
    lines = N + splat("c", 2, "s32[4,6]") + splat("d", 7, "s32[4,6]") + "e = s32[4,6] add(c, d)\n"
    after = simplified(FoldConstants().run(simplified(program(lines + "ROOT r = s32[4,6] multiply(x, e)"))))
    assert Counter(i.opcode for i in after.entry) == Counter(["parameter", "constant", "broadcast", "multiply"])


def test_long_chains_of_joins_stay_in_pieces() -> None:
    """Work in proportion to the program: no join takes over all pieces of those before it."""
    lines = ["x = f32[1] parameter(0)", "j1 = f32[2] concatenate(x, x), dimensions={0}"]
    lines += [f"j{n} = f32[{n + 1}] concatenate(j{n - 1}, x), dimensions={{0}}" for n in range(2, 300)]
    after = simplified(program("\n".join([*lines, "ROOT r = f32[300] negate(j299)"])))
    sizes = [len(i.operands) for i in after.entry if i.opcode == "concatenate"]
    assert max(sizes) <= 64
    assert sum(sizes) <= 2 * 300


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(-2, 4), high=st.integers(-2, 4), start=st.integers(0, 6), size=st.integers(1, 5),
    stride=st.integers(1, 3), before=st.integers(0, 3), after=st.integers(0, 3),
)  # fmt: skip
def test_slices_of_pads(low: int, high: int, start: int, size: int, stride: int, before: int, after: int) -> None:
    """Pads of pads, with any edges, sliced anywhere."""
    length = 7 + low + high + before + after
    if length <= start or 7 + low + high < 0:
        return
    stop = min(start + size, length)
    count = -(-(stop - start) // stride)
    lines = (
        "x = f32[7] parameter(0)\nz = f32[] parameter(1)\n"
        f"a = f32[{7 + low + high}] pad(x, z), padding={low}_{high}\n"
        f"b = f32[{length}] pad(a, z), padding={before}_{after}\n"
        f"ROOT r = f32[{count}] slice(b), slice={{[{start}:{stop}:{stride}]}}"
    )
    module = program(lines)
    args = [wild(p.shape, n) for n, p in enumerate(module.parameters)]
    (got,), (wanted,) = evaluate(simplified(module), args), evaluate(module, args)
    assert not difference(got, wanted, 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reductions_of_moved_values(data: st.DataObject) -> None:
    """Reductions over transposes, added ones and repetitions, over any dimensions."""
    dims = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(dims))))
    gone = data.draw(st.sets(st.sampled_from(range(len(dims)))))
    moved = [dims[p] for p in order]
    kept = [n for d, n in enumerate(moved) if d not in gone]

    def shape(sizes: list[int]) -> str:
        return f"s32[{','.join(map(str, sizes))}]"

    def listed(numbers: object) -> str:
        return "{" + ",".join(map(str, numbers)) + "}"  # type: ignore[call-overload]

    before = "larger { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] maximum(a, b) }"
    repeated = [*dims, 2]
    lines = (
        f"x = {shape(dims)} parameter(0)\nz = s32[] parameter(1)\n"
        f"b = {shape(repeated)} broadcast(x), dimensions={listed(range(len(dims)))}\n"
        f"m = {shape(dims)} reduce(b, z), dimensions={{{len(dims)}}}, to_apply=larger\n"
        f"t = {shape(moved)} transpose(m), dimensions={listed(order)}\n"
        f"ROOT r = {shape(kept)} reduce(t, z), dimensions={listed(sorted(gone))}, to_apply=larger"
    )
    module = program(lines, before)
    args = [wild(p.shape, n) for n, p in enumerate(module.parameters)]
    (got,), (wanted,) = evaluate(simplified(module), args), evaluate(module, args)
    assert not difference(got, wanted, 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products_that_add_up_nothing(data: st.DataObject) -> None:
    """Any batch and free dimensions in any order, with contracted ones of size 1."""
    from shardc.hlo.ir.build import Builder, make_module
    from shardc.hlo.ir.types import array_shape

    sizes = {"b": data.draw(st.integers(1, 3)), "m": data.draw(st.integers(1, 3)), "n": data.draw(st.integers(1, 3))}
    sides = [data.draw(st.permutations(["b", free, *"k" * data.draw(st.integers(0, 1))])) for free in "mn"]
    if len(sides[0]) != len(sides[1]):
        return
    b = Builder("main")
    x, y = (b.parameter(array_shape("f32", *(sizes.get(c, 1) for c in side))) for side in sides)
    attrs = {}
    for name, side in zip(("lhs", "rhs"), sides, strict=True):
        attrs[f"{name}_batch_dims"] = (side.index("b"),)
        attrs[f"{name}_contracting_dims"] = tuple(d for d, c in enumerate(side) if c == "k")
    module = make_module("products", b.build(b.add("dot", x, y, **attrs)))
    after = simplified(module)
    assert not any(i.opcode == "dot" for i in after.entry)
    args = [wild(p.shape, n) for n, p in enumerate(module.parameters)]
    (got,), (wanted,) = evaluate(after, args), evaluate(module, args)
    assert not difference(got, wanted, 0)
