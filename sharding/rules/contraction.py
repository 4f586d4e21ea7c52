"""Factor rules of matrix products: batch and free dimensions pass through, contracted ones are reductions."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.factors import FactorKind, FactorRule
from shardc.sharding.rules.signature import Replicate, Row, Rule, Signature

__all__ = ["RULES"]


def _dot(sig: Signature) -> FactorRule:
    lhs, rhs = sig.operands[0], sig.operands[1]
    lhs_contracting, rhs_contracting, lhs_batch, rhs_batch = (a or () for a in sig.attrs)
    b = sig.builder()
    out = 0
    for left, right in zip(lhs_batch, rhs_batch, strict=True):
        b.add(lhs.dims[left], [(0, left), (1, right), (2, out)])
        out += 1
    for tensor, shape, used in ((0, lhs, (*lhs_contracting, *lhs_batch)), (1, rhs, (*rhs_contracting, *rhs_batch))):
        for d, size in enumerate(shape.dims):
            if d not in used:
                b.add(size, [(tensor, d), (2, out)])
                out += 1
    for left, right in zip(lhs_contracting, rhs_contracting, strict=True):
        b.add(lhs.dims[left], [(0, left), (1, right)], FactorKind.REDUCTION)
    return b.build(reduction="sum" if lhs_contracting else "")


RULES: Mapping[str, Row] = {
    "dot": Rule(_dot, ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")),
    "ragged-dot": Replicate("the group sizes decide at run time which rows meet which matrix"),
    "scaled-dot": Replicate("blocks of the contracted dimension share one scale"),
}
