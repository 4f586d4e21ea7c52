"""Every elementwise op of a type as a small kernel over `GridCode`: four elements a thread.

Run as a program (``python -m tests.compiler.gpu.element_kernels cuda:sm_80 f32 ...``) it assembles them, so that what
LLVM cannot lower, and ends the process for, ends a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.elementwise import ELEMENTWISE, combine
from shardc.compiler.elements.arithmetic.registers import register_type
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DTYPES, Shape
from shardc.hlo.ir.types import array_shape as f
from shardc.native.gpu.assemble import assemble
from shardc.native.gpu.code import grid_code
from shardc.native.gpu.images import new_gpu_module
from shardc.native.gpu.nvptx import emit_ptx
from shardc.native.gpu.target import GpuTarget, gpu_target
from shardc.native.math.vector import I64, constant
from tests.compiler.kernel_runner import instruction

LANES, THREADS = 4, 64
COUNT = LANES * THREADS
_ATTRS = {
    "compare": {"direction": "LT"},
    "reduce-precision": {"exponent_bits": 5, "mantissa_bits": 7},
}
#: Ops that no code is made for, on no target.
_NO_CODE = {("erf", "complex"), ("remainder", "complex")}
#: What ops convert to, by type.
_TARGETS = ("f32", "f64", "bf16", "f16", "s8", "u16", "s32", "s64", "pred")


def _shapes(opcode: str, dtype: str) -> list[Shape]:
    own, truth = f(dtype, COUNT), f("pred", COUNT)
    return [truth, own, own] if opcode == "select" else [own] * int(OPS[opcode].arity or 0)


def elementwise(dtype: str) -> Iterator[Instruction]:
    """The ops that take a type, the conversions from it among them."""
    for opcode in sorted(ELEMENTWISE):
        shapes = _shapes(opcode, dtype)
        if (opcode, DTYPES[dtype].kind) in _NO_CODE:
            continue
        if opcode in ("convert", "stochastic-convert", "bitcast-convert"):
            targets = _TARGETS if opcode == "convert" else ()
            for target in targets:
                if not DTYPES[dtype].is_complex:
                    yield instruction(opcode, *shapes, shape=f(target, COUNT))
            continue
        try:
            yield instruction(opcode, *shapes, **_ATTRS.get(opcode, {}))
        except ShardcError:  # not an op of this type
            continue


def name_of(i: Instruction) -> str:
    words = [i.opcode, *(o.shape.dtype.name for o in i.operands[-1:]), i.shape.dtype.name]
    return "_".join(words).replace("-", "_")


def define(module: ir.Module, target: GpuTarget, i: Instruction) -> None:
    """The kernel of one op: operands' arrays, then the result's."""
    code = grid_code(target)
    function = code.define(module, name_of(i), len(i.operands) + 1, range(len(i.operands)), THREADS)
    entry, b = (ir.IRBuilder(function.append_basic_block(n)) for n in ("entry", "body"))
    start = b.block
    *operands, result = code.pointers(function)
    offset = b.mul(b.zext(code.thread(b), I64), constant(I64, LANES))
    loaded = [memory.load(b, p, offset, o.shape.dtype, LANES) for p, o in zip(operands, i.operands, strict=True)]
    found = combine(b, i, [v if len(v) > 1 else v[0] for v in loaded])
    parts = found if isinstance(found, tuple) else (found,)
    assert parts[0].type == register_type(i.shape.dtype, LANES), i
    memory.store(b, parts, result, offset, i.shape.dtype, None)
    code.enter(entry)
    entry.branch(start)
    code.leave(b)


def main(target_name: str, *dtypes: str) -> None:
    target = gpu_target(target_name)
    for dtype in dtypes:
        module = new_gpu_module(dtype, target)
        names = []
        for i in elementwise(dtype):
            define(module, target, i)
            names.append(name_of(i))
        kernels = assemble(emit_ptx(module, target), target.arch).kernels
        assert set(kernels) == set(names)
        for name, usage in kernels.items():
            print(dtype, name, usage.registers, usage.spill_stores + usage.spill_loads + usage.stack)


if __name__ == "__main__":
    main(*sys.argv[1:])
