"""The table of operations' costs, and its columns that everybody asks for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.costs.ops import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    random,
    reduction,
    shape,
    window,
)
from shardc.costs.ops.op_cost import MatrixProduct, OpCost
from shardc.hlo.ir.ir import Instruction

__all__ = ["OP_COSTS", "instruction_flops", "products_of"]

OP_COSTS: Mapping[str, OpCost] = MappingProxyType(
    {
        **elementwise.COSTS,
        **contraction.COSTS,
        **reduction.COSTS,
        **shape.COSTS,
        **indexing.COSTS,
        **window.COSTS,
        **linalg.COSTS,
        **random.COSTS,
        **control.COSTS,
        **collective.COSTS,
    }
)


def instruction_flops(op: Instruction) -> int:
    """Arithmetic operations of one execution: 2 per multiply-add, 1 per element of an elementwise operation.

    Reductions and scatters count their combining operation once per element read; what moves data counts nothing.
    Called computations count where they are called, not here.
    """
    return OP_COSTS[op.opcode].flops(op)


def products_of(op: Instruction) -> tuple[MatrixProduct, ...]:
    """The matrix products that an instruction is, convolutions as products of what their windows see."""
    return OP_COSTS[op.opcode].products(op)
