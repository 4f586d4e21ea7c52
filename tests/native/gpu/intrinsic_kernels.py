"""Every portable intrinsic at every type in use, as kernels: one per name.

Run as a program (``python -m tests.native.gpu.intrinsic_kernels cuda:sm_80``) it makes machine code of them all: LLVM
ends the process on what it cannot lower.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from llvmlite import ir

from shardc.native.gpu.amdgpu import emit_amdgpu, new_amdgpu_module
from shardc.native.gpu.assemble import assemble
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.nvptx import emit_ptx, new_nvptx_module
from shardc.native.gpu.target import gpu_target
from shardc.native.math.vector import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    INTRINSICS,
    PTR,
    constant,
    intrinsic,
    lanes_of,
    with_lanes,
)  # fmt: skip

VOID = ir.VoidType()
REALS, INTEGERS = (F32, F64), (I8, I16, I32, I64)
#: Intrinsics of one type for result and operands, by how many they have.
_REAL = {
    1: ("fabs", "sqrt", "floor", "ceil", "trunc", "rint"),
    2: ("copysign", "maximum", "minimum"),
    3: ("fmuladd", "fma"),
}
_INTEGER = {1: ("ctpop",), 2: ("smax", "smin", "umax", "umin"), 3: ("fshl", "fshr")}
Case = tuple[str, ir.Type, Sequence[ir.Type]]


def _wide(types: Sequence[ir.Type], lanes: Sequence[int] = (1, 2, 4)) -> list[ir.Type]:
    return [with_lanes(t, n) for t in types for n in lanes]


def cases() -> Iterator[Case]:
    """(name, result, operands)"""
    for table, types in ((_REAL, REALS), (_INTEGER, INTEGERS)):
        for count, names in table.items():
            for name in names:
                yield from ((name, t, [t] * count) for t in _wide(types))
    for t in _wide(INTEGERS):
        yield from ((name, t, [t, I1]) for name in ("ctlz", "cttz", "abs"))
    yield from (("bswap", t, [t]) for t in _wide(INTEGERS[1:]))
    for real in REALS:
        for integer in INTEGERS:
            for lanes in (1, 4):
                operands = [with_lanes(real, lanes)]
                yield from ((n, with_lanes(integer, lanes), operands) for n in ("fptosi.sat", "fptoui.sat"))
    for t in _wide((*INTEGERS, *REALS), (2, 4, 8)):
        mask = with_lanes(I1, lanes_of(t))
        yield "masked.load", t, [PTR, I32, mask, t]
        yield "masked.store", VOID, [t, PTR, I32, mask]
    for t in _wide((I1, I32), (2, 4, 8)):
        yield from ((n, t.element, [t]) for n in ("vector.reduce.or", "vector.reduce.and"))
    yield "memcpy", VOID, [PTR, PTR, I64, I1]
    yield "memset", VOID, [PTR, I8, I64, I1]
    yield "prefetch", VOID, [PTR, I32, I32, I32]


def _operand(b: ir.IRBuilder, name: str, t: ir.Type, place: ir.Value, number: int) -> ir.Value:
    if t == PTR:
        return place
    if t == I1:
        return constant(I1, 0)
    if name in ("masked.load", "masked.store") and t == I32:
        return constant(I32, 1)
    if name == "prefetch":
        return constant(I32, (0, 0, 3, 1)[number])
    return b.load(place, typ=t, align=1)


def emit(target_name: str) -> bytes:
    """Machine code of kernels with all cases."""
    target = gpu_target(target_name)
    amd = target.kind == "amdgpu"
    module = (new_amdgpu_module if amd else new_nvptx_module)("intrinsics", target)
    by_name: dict[str, list[Case]] = {}
    for case in cases():
        by_name.setdefault(case[0], []).append(case)
    assert {f"llvm.{n}" for n in by_name} == set(INTRINSICS)
    for name, group in by_name.items():
        code = grid_code(target)
        function = code.define(module, name.replace(".", "_"), 5, (), 64)
        b = ir.IRBuilder(function.append_basic_block())
        result, *places = code.pointers(function)
        for _, t, operands in group:
            values = [_operand(b, name, o, places[n], n) for n, o in enumerate(operands)]
            found = intrinsic(b, f"llvm.{name}", t, values)
            if t != VOID:
                b.store(found, result, align=1)
        code.leave(b)
    return emit_amdgpu(module, target) if amd else assemble(emit_ptx(module, target), target.arch).data


if __name__ == "__main__":
    print(len(emit(sys.argv[1])))
