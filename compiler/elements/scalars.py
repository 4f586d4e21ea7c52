"""Arithmetic on single values of one element type, for kernels that are algorithms rather than maps."""

from __future__ import annotations

from llvmlite import ir

from shardc.compiler.elements import memory
from shardc.compiler.elements.arithmetic.registers import part_count, register_type
from shardc.compiler.elements.bits import scalar_op
from shardc.compiler.elements.emitter import ElementEmitter
from shardc.compiler.elements.frames import Val
from shardc.hlo.ir.types import DTYPES, DType

__all__ = ["Scalars"]


class Scalars:
    """Scalar arithmetic of one element type on values at the builder's position."""

    def __init__(self, e: ElementEmitter, dtype: DType) -> None:
        self.e = e
        self.b: ir.IRBuilder = e.entry.builder
        self.dtype = dtype
        self.real = DTYPES[{"c64": "f32", "c128": "f64"}.get(dtype.name, dtype.name)]
        self._slots = [e.slot(register_type(dtype)) for _ in range(part_count(dtype))]

    def op(self, opcode: str, *operands: Val) -> Val:
        """An op of equal operand and result types; narrow floats are not rounded."""
        kinds = (self.dtype,) * len(operands)
        return self.e.elementwise(scalar_op(opcode, self.dtype, *kinds), operands, wide=True)

    def load(self, base: ir.Value, offset: ir.Value) -> Val:
        return Val(memory.load(self.b, base, offset, self.dtype, 1), self.e.entry)

    def store(self, value: Val, base: ir.Value, offset: ir.Value) -> None:
        rounded = self.e.elementwise(scalar_op("add", self.dtype, self.dtype, self.dtype), [value, self.zero()])
        memory.store(self.b, rounded.parts, base, offset, self.dtype, None)

    def zero(self) -> Val:
        return self.e.constant(-0.0, self.dtype)

    def conjugate(self, x: Val) -> Val:
        return Val((x.parts[0], self.b.fneg(x.parts[1])), x.frame) if len(x.parts) == 2 else x

    def put(self, value: Val) -> None:
        """Set the accumulator."""
        for slot, part in zip(self._slots, value.parts, strict=True):
            self.b.store(part, slot)

    def get(self) -> Val:
        t = register_type(self.dtype)
        return Val(tuple(self.b.load(s, typ=t) for s in self._slots), self.e.entry)
