"""Split products: one with few rows and columns but long sums becomes several, whose results are added.

``x: f32[100000,64]`` times itself transposed is one small matrix, and one thread's work. As sixteen products of 6250
rows each it is work for many, and a short sum of their results in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import constant, make, map_computations, reshape, step_computations
from shardc.hlo.ir.types import DType, array_shape

__all__ = ["SplitProducts"]

#: Rows and columns of a piece of a product that is worth a thread, and how many pieces are wanted.
_ROWS, _COLUMNS, _PIECES = 128, 256, 8
#: The least length of a part's sums, and the least multiplications of a part.
_DEPTH, _WORK = 1024, 4_000_000


@dataclass(frozen=True, slots=True)
class SplitProducts:
    """``dot`` over a long dimension is a batched ``dot`` over parts of it and a ``reduce`` of those."""

    name: str = "split-products"
    why: str = "a product of few rows and columns is computed in parts that are independent of each other"
    looks_at: ClassVar[frozenset[str]] = frozenset({"dot"})

    def run(self, module: Module) -> Module:
        return map_computations(
            module, lambda c: rebuild_computation(c, _split, only=frozenset({"dot"})), only=step_computations(module)
        )


def _split(dot: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    dtype = dot.shape.dtype
    parts = _parts(dot, operands) if dtype.is_float or dtype.is_complex else 1
    if parts == 1:
        return None
    kind = dtype.accumulator
    partial = _partial(dot, operands, parts, kind)
    zero = constant(Literal.full(array_shape(kind), 0), dot)
    total = make(
        "reduce", dot.shape.with_dtype(kind), (partial, zero), dot, dimensions=(0,),
        to_apply=binary_computation("add", kind),
    )  # fmt: skip
    return total if kind is dtype else make("convert", dot.shape, (total,), dot)


def _parts(dot: Instruction, operands: tuple[Instruction, ...]) -> int:
    """Into how many parts to cut the first contracted dimension; a divisor of it, 1: none."""
    lhs, rhs = operands
    a = dot.attrs
    contracted = a.get("lhs_contracting_dims", ())
    if not contracted or 0 in dot.shape.dims:
        return 1
    batch = len(a.get("lhs_batch_dims", ()))
    kept = lhs.shape.rank - len(contracted)
    batches, rows, columns = (math.prod(d) for d in _thirds(dot.shape.dims, batch, kept))
    depth = math.prod(lhs.shape.dims[d] for d in contracted)
    pieces = batches * -(-rows // _ROWS) * -(-columns // _COLUMNS)
    if pieces >= _PIECES:
        return 1
    most = min(2 * _PIECES // pieces, depth // _DEPTH, batches * rows * columns * depth // _WORK)
    size = lhs.shape.dims[contracted[0]]
    found = next((n for n in range(most, 1, -1) if size % n == 0), 1)
    scratch = found * dot.shape.size * 4
    return found if scratch * 2 <= lhs.shape.nbytes + rhs.shape.nbytes else 1


def _thirds(dims: tuple[int, ...], first: int, second: int) -> tuple[tuple[int, ...], ...]:
    return dims[:first], dims[first:second], dims[second:]


def _partial(dot: Instruction, operands: tuple[Instruction, ...], parts: int, kind: DType) -> Instruction:
    """The products of the parts, which are the first dimension."""
    attrs = dict(dot.attrs)
    cut = []
    for operand, side in zip(operands, ("lhs", "rhs"), strict=True):
        batch = tuple(attrs.get(f"{side}_batch_dims", ()))
        contracted = tuple(attrs[f"{side}_contracting_dims"])
        at = contracted[0]
        dims = operand.shape.dims
        cut.append(reshape(operand, (*dims[:at], parts, dims[at] // parts, *dims[at + 1 :]), dot))
        attrs[f"{side}_batch_dims"] = (at, *(d + (d > at) for d in batch))
        attrs[f"{side}_contracting_dims"] = tuple(d + (d >= at) for d in contracted)
    shape = array_shape(kind, parts, *dot.shape.dims)
    return make("dot", shape, cut, dot).replace(attrs=MappingProxyType(attrs))
