"""Kernels of every kind: of each emitter some that its emitter cuts in different ways, as HLO text."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.text.reader import read_hlo

__all__ = ["KINDS", "Kind", "instruction_of"]

_CALLED = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
add64 { a = f64[] parameter(0) b = f64[] parameter(1) ROOT r = f64[] add(a, b) }
larger { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
less { a = f64[] parameter(0) b = f64[] parameter(1) p = u64[] parameter(2) q = u64[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }
"""


@dataclass(frozen=True)
class Kind:
    """``text`` is the body of one instruction or, as ``fused``, of a fusion of that kind. ``registers`` is what its
    functions may take. ``in_place`` maps operands to results in whose memory they lie."""

    name: str
    emitter: str
    text: str
    fused: str = "kLoop"
    registers: int = 64
    ulp: float = 8
    in_place: tuple[tuple[int, int], ...] = ()


def instruction_of(kind: Kind) -> Instruction:
    """The instruction on parameters."""
    entry = read_hlo(f"HloModule kind\n{_CALLED}\nENTRY main {{\n{kind.text}\n}}").entry
    if not kind.fused:
        return entry.root
    operands = tuple(Instruction("parameter", p.shape, attrs={"index": n}) for n, p in enumerate(entry.parameters))
    return Instruction("fusion", entry.root.shape, operands, {"kind": kind.fused, "calls": entry})


KINDS = (
    Kind("vectors of bytes and of words", "loop", """
        x = f32[33,512] parameter(0)
        p = pred[33,512] parameter(1)
        y = bf16[33,512] parameter(2)
        c = f32[33,512] convert(y)
        e = f32[33,512] exponential(x)
        s = f32[33,512] select(p, c, e)
        ROOT r = (f32[33,512], bf16[33,512]) tuple(s, y)"""),
    Kind("ragged rows, rows repeated", "loop", """
        x = f32[7,130] parameter(0)
        b = f32[130] parameter(1)
        w = f32[7,130] broadcast(b), dimensions={1}
        m = f32[7,130] multiply(x, w)
        ROOT r = f32[5,129] slice(m), slice={[1:6], [0:129]}"""),
    Kind("double precision", "loop", """
        x = f64[1000] parameter(0)
        t = f64[1000] tanh(x)
        ROOT r = f64[1000] add(t, x)"""),
    Kind("transposition in tiles, computed on either side", "loop", """
        x = f32[70,3,90] parameter(0)
        y = f32[90,3,70] parameter(1)
        e = f32[70,3,90] negate(x)
        t = f32[90,3,70] transpose(e), dimensions={2,1,0}
        ROOT r = f32[90,3,70] add(t, y)"""),
    Kind("transposition of bytes", "loop", """
        x = s8[100,130] parameter(0)
        ROOT t = s8[130,100] transpose(x), dimensions={1,0}"""),
    Kind("concatenation, padding and reversal", "loop", """
        x = f32[9,20] parameter(0)
        y = f32[5,20] parameter(1)
        z = f32[] parameter(2)
        c = f32[14,20] concatenate(x, y), dimensions={0}
        p = f32[16,25] pad(c, z), padding=1_1x2_3
        ROOT r = f32[16,25] reverse(p), dimensions={0}"""),
    Kind("rows gathered", "loop", """
        x = bf16[50,64] parameter(0)
        i = s32[30] parameter(1)
        ROOT g = bf16[30,64] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
            index_vector_dim=1, slice_sizes={1,64}"""),
    Kind("update in place", "update", """
        x = f32[50,64] parameter(0)
        u = f32[3,64] parameter(1)
        i = s32[] parameter(2)
        z = s32[] constant(0)
        n = f32[3,64] negate(u)
        ROOT d = f32[50,64] dynamic-update-slice(x, n, i, z)""", in_place=((0, 0),)),
    Kind("many arrays joined", "concatenation", """
        x = bf16[9,20] parameter(0)
        y = bf16[9,5] parameter(1)
        n = bf16[9,20] negate(x)
        ROOT c = bf16[9,90] concatenate(x, y, n, x, y, n), dimensions={1}"""),
    Kind("rows added to a table", "scatter", """
        x = f32[9,32] parameter(0)
        i = s32[40] parameter(1)
        u = f32[40,32] parameter(2)
        ROOT s = f32[9,32] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
            scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""", fused=""),
    Kind("gradient of pooling", "select and scatter", """
        x = f32[20,30] parameter(0)
        s = f32[10,15] parameter(1)
        z = f32[] parameter(2)
        ROOT r = f32[20,30] select-and-scatter(x, s, z), window={size=3x3 stride=2x2 pad=0_1x0_1}, select=larger,
            scatter=add""", fused=""),
    Kind("short rows", "row reduction", """
        x = f32[300,12] parameter(0)
        z = f32[] constant(0)
        e = f32[300,12] multiply(x, x)
        ROOT r = f32[300] reduce(e, z), dimensions={1}, to_apply=add"""),
    Kind("rows of bf16, two results", "row reduction", """
        x = bf16[5,3000] parameter(0)
        z = f32[] constant(0)
        c = f32[5,3000] convert(x)
        s = f32[5] reduce(c, z), dimensions={1}, to_apply=add
        m = f32[5] reduce(c, z), dimensions={1}, to_apply=max
        ROOT r = (f32[5], f32[5]) tuple(s, m)"""),
    Kind("one long sum", "row reduction", """
        x = f32[200000] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add"""),
    Kind("columns", "column reduction", """
        x = f32[700,65] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[65] reduce(x, z), dimensions={0}, to_apply=add"""),
    Kind("columns in double precision", "column reduction", """
        x = f64[3,90,40] parameter(0)
        z = f64[] constant(0)
        ROOT r = f64[3,40] reduce(x, z), dimensions={1}, to_apply=add64"""),
    Kind("columns less their means", "staged", """
        x = f32[100,65] parameter(0)
        z = f32[] constant(0)
        s = f32[65] reduce(x, z), dimensions={0}, to_apply=add
        n = f32[] constant(0.01)
        w = f32[65] broadcast(n), dimensions={}
        m = f32[65] multiply(s, w)
        b = f32[100,65] broadcast(m), dimensions={1}
        ROOT r = f32[100,65] subtract(x, b)"""),
    Kind("softmax", "row kernel", """
        x = f32[6,1000] parameter(0)
        l = f32[] constant(-inf)
        z = f32[] constant(0)
        m = f32[6] reduce(x, l), dimensions={1}, to_apply=max
        b = f32[6,1000] broadcast(m), dimensions={0}
        d = f32[6,1000] subtract(x, b)
        e = f32[6,1000] exponential(d)
        s = f32[6] reduce(e, z), dimensions={1}, to_apply=add
        t = f32[6,1000] broadcast(s), dimensions={0}
        ROOT r = f32[6,1000] divide(e, t)"""),
    Kind("running sums of rows", "cumulative", """
        x = f32[4,700] parameter(0)
        z = f32[] parameter(1)
        ROOT r = f32[4,700] reduce-window(x, z), window={size=1x700 pad=0_0x699_0}, to_apply=add""", fused="", ulp=64),
    Kind("running sums of columns", "cumulative", """
        x = f32[300,40] parameter(0)
        z = f32[] parameter(1)
        ROOT r = f32[300,40] reduce-window(x, z), window={size=300x1 pad=299_0x0_0}, to_apply=add""", fused="", ulp=64),
    Kind("pooling", "loop", """
        x = f32[2,21,30,5] parameter(0)
        z = f32[] parameter(1)
        ROOT r = f32[2,10,15,5] reduce-window(x, z), window={size=1x3x2x1 stride=1x2x2x1}, to_apply=max""", fused=""),
    Kind("product with bias and activation", "product", """
        x = f32[70,40] parameter(0)
        w = f32[40,90] parameter(1)
        b = f32[90] parameter(2)
        d = f32[70,90] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        s = f32[70,90] broadcast(b), dimensions={1}
        a = f32[70,90] add(d, s)
        ROOT r = f32[70,90] tanh(a)""", fused="kOutput", registers=255, ulp=64),
    Kind("product of bf16", "product", """
        x = bf16[2,80,64] parameter(0)
        w = bf16[2,96,64] parameter(1)
        ROOT d = bf16[2,80,96] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
            rhs_contracting_dims={2}""", fused="", registers=255),
    Kind("product of doubles", "product", """
        x = f64[40,70] parameter(0)
        w = f64[40,33] parameter(1)
        ROOT d = f64[70,33] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}""", fused="", registers=255,
        ulp=64),
    Kind("product of integers", "product", """
        x = s8[40,70] parameter(0)
        w = s8[70,33] parameter(1)
        ROOT d = s32[40,33] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""", fused="", registers=255),
    Kind("matrix times vector", "product", """
        x = f32[70,500] parameter(0)
        w = f32[500] parameter(1)
        ROOT d = f32[70] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}""", fused="", registers=255,
        ulp=64),
    Kind("convolution with strides", "convolution", """
        x = f32[2,13,13,8] parameter(0)
        w = f32[3,3,8,16] parameter(1)
        ROOT c = f32[2,7,7,16] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1},
            dim_labels=b01f_01io->b01f""", fused="", registers=255, ulp=64),
    Kind("gradient of a convolution", "convolution", """
        x = f32[2,7,7,16] parameter(0)
        w = f32[3,3,16,8] parameter(1)
        ROOT c = f32[2,13,13,8] convolution(x, w), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2},
            dim_labels=b01f_01io->b01f""", fused="", registers=255, ulp=64),
    Kind("long rows sorted with what goes along", "sort", """
        x = f64[2100] parameter(0)
        y = u64[2100] parameter(1)
        ROOT s = (f64[2100], u64[2100]) sort(x, y), dimensions={0}, is_stable=true, to_apply=less""", fused=""),
    Kind("the best of long rows", "top-k", """
        x = f64[2,2100] parameter(0)
        ROOT t = (f64[2,7], s32[2,7]) topk(x), k=7, largest=true""", fused=""),
    Kind("factors of doubles", "cholesky", """
        x = f64[3,20,20] parameter(0)
        ROOT c = f64[3,20,20] cholesky(x), lower=false""", fused="", ulp=64),
    Kind("solves from the right", "triangular solve", """
        a = f64[2,20,20] parameter(0)
        b = f64[2,7,20] parameter(1)
        ROOT x = f64[2,7,20] triangular-solve(a, b), left_side=false, lower=true, transpose_a=TRANSPOSE""",
        fused="", ulp=64),
)  # fmt: skip
