"""Dense copies of the sides of a matrix product that BLAS cannot read as they lie."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.cpu.parallel import ChunkSpan, chunks, phase
from shardc.compiler.cpu.scratch import allocate
from shardc.compiler.elements.affine import Mask
from shardc.compiler.elements.dot_sides import DotSide
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, array_shape

__all__ = ["pack"]


def pack(kernel: CpuKernel, e: CpuEmitter, number: int, operand: Instruction, side: DotSide, kind: DType) -> ir.Value:
    """Scratch memory with operand ``number`` of the kernel as `DotSide.dense` says, in type ``kind``."""
    order = (*side.batch, *side.rows, *side.columns)
    packed = array_shape(kind, *(side.dims[d] for d in order))
    place = allocate(e, packed.nbytes)
    count = chunks(nbytes=packed.nbytes + operand.shape.nbytes)

    def element(e: Elements, index: Index, mask: Mask) -> object:
        where = [index[0]] * len(order) if order else []
        for position, d in enumerate(order):
            where[d] = index[position]
        return convert_element(e, e.value(operand, tuple(where), mask), operand.shape.dtype, kind)

    def copy(part: CpuKernel, to: ir.Value, span: ChunkSpan | None) -> None:
        p = part.emitter({operand: part.operands[number]})
        emit_map(p, packed.dims, [MapOutput(to, packed, element)], span=span)
        p.finish()

    phase(kernel, e, count, lambda part: copy(part, part.shared[0], ChunkSpan(count, part.begin, part.end)), [place])
    return place
