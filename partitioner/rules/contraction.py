"""Matrix products: a split contracted dimension gives partial sums; its padding is zero on both operands."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, linear_in_each, pass_or_reduce

__all__ = ["RULES"]


def _dot(site: LocalSite) -> list[Instruction]:
    """Zero times infinity is not zero, hence the mask on both sides."""
    operands = []
    for i, key in enumerate(("lhs_contracting_dims", "rhs_contracting_dims")):
        zero = site.em.scalar(0, site.operands[i].shape.dtype)
        operands.append(site.masked(i, site.op.attrs.get(key) or (), zero))
    return site.emit(operands)


RULES: Mapping[str, PartitionRow] = {
    "dot": Local("on shards, partial sums over contracted axes", _dot, pass_or_reduce, linear_in_each),
    "ragged-dot": Local("on shards of dimensions without groups, contracted dimensions whole"),
    "scaled-dot": Local("on shards of blocks, contracted dimensions whole"),
}
