"""One instruction per op that is a kernel's concern, small and typical: who makes its GPU code is asked with it, and
tests run it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.compiler.elements.arithmetic.elementwise import ELEMENTWISE
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.reader import read_hlo

__all__ = ["sample"]

#: What the samples call.
_CALLED = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
larger { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }
inside { a = f32[37] parameter(0) b = f32[37] exponential(a) ROOT r = f32[37] add(a, b) }
"""

# opcode | parameters | the instruction; elementwise ops on f32 or s32 only are not listed
_TABLE = """
batch-norm-grad | x: f32[6,4]; p1: f32[4]; p2: f32[4]; p3: f32[4]; p4: f32[6,4] | (f32[6,4], f32[4], f32[4]) \
batch-norm-grad(x, p1, p2, p3, p4), epsilon=0.001, feature_index=1
batch-norm-inference | x: f32[6,4]; p1: f32[4]; p2: f32[4]; p3: f32[4]; p4: f32[4] | f32[6,4] \
batch-norm-inference(x, p1, p2, p3, p4), epsilon=0.001, feature_index=1
batch-norm-training | x: f32[6,4]; p1: f32[4]; p2: f32[4] | (f32[6,4], f32[4], f32[4]) batch-norm-training(x, \
p1, p2), epsilon=0.001, feature_index=1
bitcast-convert | x: f32[37] | s32[37] bitcast-convert(x)
broadcast | x: f32[37] | f32[9,37] broadcast(x), dimensions={1}
cholesky | x: f32[2,5,5] | f32[2,5,5] cholesky(x), lower=true
compare | x: f32[37]; y: f32[37] | pred[37] compare(x, y), direction=LT
complex | x: f32[37]; y: f32[37] | c64[37] complex(x, y)
concatenate | x: f32[3,5]; y: f32[4,5] | f32[7,5] concatenate(x, y), dimensions={0}
constant |  | f32[3] constant({1, 2, 3})
convert | x: f32[37] | bf16[37] convert(x)
convolution | x: f32[2,7,7,3]; y: f32[3,3,3,4] | f32[2,7,7,4] convolution(x, y), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f
dot | x: f32[9,20]; y: f32[20,7] | f32[9,7] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
dynamic-slice | x: f32[37]; i: s32[] | f32[9] dynamic-slice(x, i), dynamic_slice_sizes={9}
dynamic-update-slice | x: f32[37]; u: f32[9]; i: s32[] | f32[37] dynamic-update-slice(x, u, i)
fft | x: c64[3,8] | c64[3,8] fft(x), fft_type=FFT, fft_length={8}
fusion | x: f32[37] | f32[37] fusion(x), kind=kLoop, calls=inside
gather | x: f32[9,5]; i: s32[4] | f32[4,5] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}
imag | x: c64[37] | f32[37] imag(x)
iota |  | f32[3,5] iota(), iota_dimension=1
is-finite | x: f32[37] | pred[37] is-finite(x)
map | x: f32[37]; y: f32[37] | f32[37] map(x, y), dimensions={0}, to_apply=add
pad | x: f32[5,7]; y: f32[] | f32[9,13] pad(x, y), padding=1_3x0_0_1
real | x: c64[37] | f32[37] real(x)
reduce | x: f32[9,37]; z: f32[] | f32[9] reduce(x, z), dimensions={1}, to_apply=add
reduce-precision | x: f32[37] | f32[37] reduce-precision(x), exponent_bits=5, mantissa_bits=4
reduce-window | x: f32[8,10]; z: f32[] | f32[4,5] reduce-window(x, z), window={size=2x2 stride=2x2}, \
to_apply=add
reshape | x: f32[5,6] | f32[30] reshape(x)
reverse | x: f32[5,6] | f32[5,6] reverse(x), dimensions={1}
rng-bit-generator | x: u64[2] | (u64[2], u32[37]) rng-bit-generator(x), algorithm=rng_three_fry
scatter | x: f32[9,5]; i: s32[4]; u: f32[4,5] | f32[9,5] scatter(x, i, u), update_window_dims={1}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
select | p: pred[37]; x: f32[37]; y: f32[37] | f32[37] select(p, x, y)
select-and-scatter | x: f32[8,10]; s: f32[4,5]; z: f32[] | f32[8,10] select-and-scatter(x, s, z), \
window={size=2x2 stride=2x2}, select=larger, scatter=add
slice | x: f32[9,37] | f32[4,18] slice(x), slice={[1:9:2], [0:36:2]}
sort | x: f32[9,37] | f32[9,37] sort(x), dimensions={1}, is_stable=true, to_apply=less
topk | x: f32[9,37] | (f32[9,5], s32[9,5]) topk(x), k=5, largest=true
transpose | x: f32[40,37] | f32[37,40] transpose(x), dimensions={1,0}
triangular-solve | a: f32[2,5,5]; b: f32[2,5,3] | f32[2,5,3] triangular-solve(a, b), left_side=true, \
lower=true, transpose_a=NO_TRANSPOSE
"""
#: Elementwise ops of integers.
_INTEGER = frozenset(
    {
        *("and", "or", "xor", "not", "popcnt", "count-leading-zeros"),
        *("shift-left", "shift-right-arithmetic", "shift-right-logical"),
    }
)


def _texts() -> dict[str, str]:
    """HLO text by opcode."""
    found = {}
    for line in _TABLE.strip().splitlines():
        opcode, parameters, last = (part.strip() for part in line.split("|"))
        lines = [
            "{} = {} parameter({})".format(*parameter.split(": "), n)
            for n, parameter in enumerate(parameters.split("; "))
            if parameter
        ]
        body = "\n".join([*lines, f"ROOT r = {last}"])
        found[opcode] = f"HloModule sample\n{_CALLED}\nENTRY main {{\n{body}\n}}"
    return found


_TEXTS: Mapping[str, str] = MappingProxyType(_texts())


def sample(opcode: str) -> Instruction:
    """An instruction of that op on parameters. KeyError for ops that are no kernel's concern.

    Example: ``sample("reduce").shape`` is ``f32[9]``.
    """
    if opcode in _TEXTS:
        return read_hlo(_TEXTS[opcode]).entry.root
    if opcode not in ELEMENTWISE:
        raise KeyError(opcode)
    b = Builder("sample")
    shape = array_shape("s32" if opcode in _INTEGER else "f32", 37)
    return b.add(opcode, *(b.parameter(shape) for _ in range(OPS[opcode].arity or 0)))
