"""Top-k of a flattened array is the top-k of the lines that were flattened, and then of what those give.

A beam search flattens beams and words. A split vocabulary does not survive that, but the best of all are among the
best of each beam. Lines and their best stand in order of position, so that equal values are found in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.partitioner.prepare.contract_unflattened import loses_axes, merge_runs

__all__ = ["SearchUnflattened"]


@dataclass(frozen=True, slots=True)
class SearchUnflattened:
    """Top-k whose searched dimension was merged from several, where the merging would cost a split."""

    name: str = "search-unflattened"
    why: str = "the best of all are among the best of each line, which need not be gathered"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _line_by_line, {"topk"})


def _line_by_line(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    flat = operands[0]
    if flat.opcode != "reshape" or not loses_axes(flat):
        return None
    x = flat.operands[0]
    runs = merge_runs(x.shape.dims, flat.shape.dims)
    if runs is None or any(len(r) > 1 for r in runs[:-1]) or not isinstance(x.sharding, Sharding):
        return None
    lines = _Search(old, replace(x.sharding, unreduced=()), x.shape.rank - 1)
    whole = replace(lines, kept=len(runs) - 1)
    values, places = (whole.flattened(v) for v in lines.of_lines(x, whole.kept))
    best, which = whole.top(values, old.attrs["k"])
    return old.replace(opcode="tuple", operands=(best, whole.taken(places, which)), attrs={})


@dataclass(frozen=True, slots=True)
class _Search:
    """The instructions of one top-k; the first ``kept`` dimensions are split as ``sharding`` says, others whole."""

    op: Instruction
    sharding: Sharding
    kept: int

    def of_lines(self, x: Instruction, batch: int) -> tuple[Instruction, Instruction]:
        """The best of every line, and their positions when the dimensions from ``batch`` on are one."""
        values, places = self.top(x, min(self.op.attrs["k"], x.shape.dims[-1]))
        pitch = x.shape.dims[-1]
        for d in reversed(range(batch, self.kept)):
            line = self.made("iota", places.shape, (), iota_dimension=d)
            step = self.splat(pitch, places.shape)
            places = self.made("add", places.shape, (places, self.made("multiply", places.shape, (line, step))))
            pitch *= x.shape.dims[d]
        return values, places

    def flattened(self, x: Instruction) -> Instruction:
        """What is not kept as one dimension."""
        dims = x.shape.dims
        return self.made("reshape", x.shape.with_dims((*dims[: self.kept], math.prod(dims[self.kept :]))), (x,))

    def top(self, x: Instruction, k: int) -> tuple[Instruction, Instruction]:
        dims = (*x.shape.dims[:-1], k)
        shapes = [s.with_dims(dims).plain for s in self.op.shape.leaves()]
        placed = tuple(self.split(len(dims)) for _ in shapes)
        found = self.op.replace(
            shape=tuple_shape(*shapes), operands=(x,), attrs={**self.op.attrs, "k": k}, sharding=placed
        )
        best, where = (self.made("get-tuple-element", s, (found,), index=i) for i, s in enumerate(shapes))
        return best, where

    def taken(self, x: Instruction, which: Instruction) -> Instruction:
        """Elements of ``x`` at positions of its last dimension."""
        last, dims = x.shape.rank - 1, which.shape.dims
        return self.made(
            "gather",
            x.shape.with_dims(dims),
            (x, self.made("reshape", which.shape.with_dims((*dims, 1)), (which,))),
            offset_dims=(),
            collapsed_slice_dims=(last,),
            start_index_map=(last,),
            operand_batching_dims=tuple(range(last)),
            start_indices_batching_dims=tuple(range(last)),
            index_vector_dim=last + 1,
            slice_sizes=(1,) * (last + 1),
        )

    def made(self, opcode: str, shape: Shape, operands: Sequence[Instruction], **attrs: object) -> Instruction:
        return self.op.replace(
            opcode=opcode, shape=shape.plain, operands=tuple(operands), attrs=attrs, sharding=self.split(shape.rank)
        )

    def splat(self, value: int, like: Shape) -> Instruction:
        literal = Literal.full(array_shape(like.dtype), value)
        whole = replace(self.sharding, dims=())
        one = self.op.replace(
            opcode="constant", shape=array_shape(like.dtype), operands=(), attrs={"literal": literal}, sharding=whole
        )
        return self.made("broadcast", like, (one,), dimensions=())

    def split(self, rank: int) -> Sharding:
        return replace(self.sharding, dims=(*self.sharding.dims[: self.kept], *(DimSharding(),) * (rank - self.kept)))
