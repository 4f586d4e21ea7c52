"""Writing one op as a short program of others: `Operations`, a builder with the words that such programs use."""

from __future__ import annotations

from typing import Any

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import Shape, array_shape

__all__ = ["Operations"]


class Operations:
    """A computation that takes the operands of ``instruction`` and computes what it does.

    Example::

        p = Operations(i)                       # i = f32[4] stochastic-convert(x, r)
        x, r = p.parameters
        return p.build(p.op("abs", x))
    """

    def __init__(self, instruction: Instruction) -> None:
        name = f"expanded_{instruction.opcode.replace('-', '_')}"
        self.b = Builder(name, metadata=instruction.metadata, origin=instruction.origin)
        self.parameters = [self.b.parameter(o.shape.plain) for o in instruction.operands]

    def op(self, opcode: str, *operands: Instruction, **fields: Any) -> Instruction:
        return self.b.add(opcode, *operands, **fields)

    def full(self, value: Any, like: Shape) -> Instruction:
        """An array of the shape ``like`` with one value."""
        return self.b.constant(value, like.dtype, like.dims)

    def spread(self, x: Instruction, dims: tuple[int, ...], at: tuple[int, ...] = ()) -> Instruction:
        """Dimension k of ``x`` becomes dimension ``at[k]`` of ``dims``."""
        if x.shape.dims == dims and at == tuple(range(len(dims))):
            return x
        return self.op("broadcast", x, shape=x.shape.plain.with_dims(dims), dimensions=at)

    def convert(self, x: Instruction, dtype: str) -> Instruction:
        if x.shape.dtype.name == dtype:
            return x
        return self.op("convert", x, shape=x.shape.plain.with_dtype(dtype))

    def reshape(self, x: Instruction, dims: tuple[int, ...]) -> Instruction:
        return x if x.shape.dims == dims else self.op("reshape", x, shape=x.shape.plain.with_dims(dims))

    def iota(self, dtype: str, dims: tuple[int, ...], dimension: int) -> Instruction:
        return self.op("iota", shape=array_shape(dtype, *dims), iota_dimension=dimension)

    def compare(self, direction: str, x: Instruction, y: Instruction) -> Instruction:
        return self.op("compare", x, y, direction=direction)

    def element(self, x: Instruction, k: int) -> Instruction:
        """Element k of a tuple."""
        return self.op("get-tuple-element", x, index=k)

    def build(self, *results: Instruction) -> Computation:
        """The computation; several results, or one that is a part of a tuple shape, make a tuple."""
        return self.b.build(results[0] if len(results) == 1 else self.op("tuple", *results))
