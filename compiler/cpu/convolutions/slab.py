"""The part of the input that a block of a convolution reads, padded, dilated and in the product's type."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.cpu.loops.mapping import emit_map
from shardc.compiler.cpu.loops.outputs import MapOutput
from shardc.compiler.elements.affine import Expr, InRange, Mask, condition, divmod_expr
from shardc.compiler.elements.elements import Elements, Index
from shardc.compiler.elements.folds import convert_element
from shardc.compiler.elements.frames import Frame
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, Shape, array_shape
from shardc.native.math.vector import I1, I8, I64, constant, intrinsic

__all__ = ["Slab", "clear", "parameter"]


def parameter(shape: Shape) -> Instruction:
    """A value that lies in memory."""
    return Instruction("parameter", shape, attrs={"index": 0})


def clear(b: ir.IRBuilder, place: ir.Value, nbytes: int) -> None:
    """Zeros."""
    intrinsic(b, "llvm.memset", ir.VoidType(), [place, constant(I8, 0), constant(I64, nbytes), constant(I1, 0)])


class Slab:
    """A block's part of ``operand`` in memory of its own.

    Along dimensions of which every block reads the same part, borders are zeros that are written first, and the copy is
    of what exists; along the others each position has its condition. So long runs in between are copied as vectors.
    """

    def __init__(
        self, operand: Instruction, extents: Sequence[int], kind: DType, place: ir.Value,
        dilation: Sequence[int] = (), order: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.operand, self.extents = operand, tuple(extents)
        self.dilation = dilation or [1] * len(extents)
        self.kind = kind
        self.place = place
        #: The operand's dimensions as they follow one another here (default: as in the operand).
        self.order = tuple(order or range(len(extents)))
        self.shape = array_shape(kind, *(extents[d] for d in self.order))
        self.leaf = parameter(self.shape)

    def fill(self, e: CpuEmitter, frame: Frame, origin: Index) -> None:
        """Copy what lies from ``origin``."""
        sizes = zip(origin, self.extents, self.operand.shape.dims, self.dilation, strict=True)
        axes = [_Axis(*each) for each in sizes]
        if any(a.count != a.extent for a in axes):
            clear(frame.builder, self.place, self.shape.nbytes)
        if any(a.count <= 0 for a in axes):
            return

        def element(e: Elements, index: Index, mask: Mask) -> object:
            found = [a.read(e, x) for a, x in zip(axes, index, strict=True)]
            if any(test is False for _, tests in found for test in tests):
                return e.constant(0, self.kind)
            conditions = tuple(c for _, tests in found for c in tests if isinstance(c, InRange))
            value = e.value(self.operand, tuple(at for at, _ in found), (*mask, *conditions))
            value = convert_element(e, value, self.operand.shape.dtype, self.kind)
            return e.choose(conditions, value, e.constant(0, self.kind)) if conditions else value

        def place(e: Elements, index: Index) -> Index:
            return tuple(axes[d].write(index[d]) for d in self.order)

        emit_map(e, [a.count for a in axes], [MapOutput(self.place, self.shape, element, place)], frame)


class _Axis:
    """One dimension: ``extent`` positions from ``origin`` of an input of ``size``, ``dilation`` apart."""

    def __init__(self, origin: Expr, extent: int, size: int, dilation: int) -> None:
        self.origin, self.extent, self.size, self.dilation = origin, extent, size, dilation
        low, _ = origin.range
        #: Every block reads this part, or all that any block reads exists.
        self.fixed = not origin.terms
        if self.fixed:
            self.first = max(0, -(-low // dilation))
            self.count = min(size, (low + extent - 1) // dilation + 1) - self.first
        else:
            self.first, self.count = 0, extent

    def read(self, e: Elements, x: Expr) -> tuple[Expr, list[InRange | bool]]:
        """The index in the input, and the conditions under which it exists (False: never)."""
        if self.fixed:
            return x + self.first, []
        position = x + self.origin
        tests = [condition(position, 0, (self.size - 1) * self.dilation + 1)]
        if self.dilation > 1:
            # Positions may be negative: dividing those is harmless once they count from a multiple further down.
            shift = -(position.range[0] // self.dilation) if position.range[0] < 0 else 0
            position, rest = divmod_expr(e.source, position + shift * self.dilation, self.dilation)
            position = position - shift
            tests.append(condition(rest, 0, 1))
        return position, tests

    def write(self, x: Expr) -> Expr:
        """The place in the slab."""
        return (x + self.first) * self.dilation - self.origin if self.fixed else x
