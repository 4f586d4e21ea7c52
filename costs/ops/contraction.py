"""What contractions cost: two operations per multiply-add."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardc.costs.ops.op_cost import MatrixProduct, OpCost
from shardc.hlo.ir.ir import Instruction

__all__ = ["COSTS", "product_of_sizes", "product_rate"]


def _dot_flops(op: Instruction) -> int:
    contracted: tuple[int, ...] = op.attrs.get("lhs_contracting_dims") or ()
    return 2 * op.shape.size * math.prod(op.operands[0].shape.dims[d] for d in contracted)


def _dot_products(op: Instruction) -> tuple[MatrixProduct, ...]:
    left, right = (o.shape.dims for o in op.operands[:2])
    contracted: tuple[int, ...] = op.attrs.get("lhs_contracting_dims") or ()
    batched: tuple[int, ...] = op.attrs.get("lhs_batch_dims") or ()
    k, batch = (math.prod(left[d] for d in dims) for dims in (contracted, batched))
    m, n = (math.prod(dims) // max(1, k * batch) for dims in (left, right))
    return (product_of_sizes(op, batch, m, n, k),) if op.shape.size and k else ()


def product_of_sizes(op: Instruction, batch: int, m: int, n: int, k: int) -> MatrixProduct:
    """The product that ``op`` is, with the rate and bytes of its operands' types."""
    sides = [o.shape.dtype for o in op.operands[:2]]
    sizes = (sides[0].nbytes, sides[1].nbytes, op.shape.dtype.nbytes)
    terms = 4 if any(d.is_complex for d in sides) else 1
    return MatrixProduct(batch, m, n, k, product_rate(op), sizes, terms)


def product_rate(op: Instruction) -> str:
    """The name of the rate at which a device computes the product that ``op`` is: by its operands' types and its
    precision."""
    widest = max((o.shape.dtype for o in op.operands[:2]), key=lambda d: d.bits)
    name = ("f64" if widest.name == "c128" else "f32") if widest.is_complex else widest.name
    precision: tuple[str, ...] = op.attrs.get("operand_precision") or ("default",)
    if name == "f32" and "highest" not in precision:
        name = "f32_high" if "high" in precision else "f32_default"
    return name


COSTS: Mapping[str, OpCost] = {
    "dot": OpCost(_dot_flops, products=_dot_products),
    "ragged-dot": OpCost(),
    "scaled-dot": OpCost(),
}
