"""Factor rules of matrix products: batch and free dimensions pass through, contracted ones are reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder
from shardc.sharding.rules.signature import FactorRow, Row, Signature

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


def _ragged_dot(sig: Signature) -> FactorRule:
    """Groups cut one dimension of the lhs at places that only run time knows: it stays whole, and so do the groups.

    A batch dimension passes through where the group sizes have it, too, or where all batches share one list of them.
    """
    lhs, rhs, sizes, out = (*sig.operands, sig.results[0])
    lhs_contracting, rhs_contracting, lhs_batch, rhs_batch, ragged, group = (a or () for a in sig.attrs)
    b = sig.builder()
    groups_lead = bool(set(ragged) & set(lhs_contracting))
    if groups_lead:
        b.add(out.dims[0], [(3, 0), (2, sizes.rank - 1)], FactorKind.NEED_REPLICATION)
    at = int(groups_lead)
    for n, (left, right) in enumerate(zip(lhs_batch, rhs_batch, strict=True)):
        own = [(2, n)] if n < sizes.rank - 1 else []
        b.add(lhs.dims[left], [(0, left), (1, right), *own, (3, at)], _unless(left in ragged))
        at += 1
    for tensor, shape, used in (
        (0, lhs, (*lhs_contracting, *lhs_batch)),
        (1, rhs, (*rhs_contracting, *rhs_batch, *group)),
    ):
        for d, size in enumerate(shape.dims):
            if d not in used:
                b.add(size, [(tensor, d), (3, at)], _unless(tensor == 0 and d in ragged))
                at += 1
    for left, right in zip(lhs_contracting, rhs_contracting, strict=True):
        kind = FactorKind.NEED_REPLICATION if left in ragged else FactorKind.REDUCTION
        b.add(lhs.dims[left], [(0, left), (1, right)], kind)
    return b.build(reduction="sum" if set(lhs_contracting) - set(ragged) else "")


def _unless(whole: bool) -> FactorKind:
    return FactorKind.NEED_REPLICATION if whole else FactorKind.PASS_THROUGH


def _scaled_dot(sig: Signature) -> FactorRule:
    """A matrix product whose operands have scales: a scale covers a block of each dimension.

    A dimension in blocks is a major factor, which the scale shares, and a minor one within the block. Where the two
    sides of a contraction have different blocks, only whole blocks of both can be split.
    """
    lhs_contracting, rhs_contracting, lhs_batch, rhs_batch = (a or () for a in sig.attrs)
    b = sig.builder()
    out = 0
    for left, right in zip(lhs_batch, rhs_batch, strict=True):
        _in_blocks(b, sig, ((0, left), (1, right)), (4, out), FactorKind.PASS_THROUGH)
        out += 1
    for tensor, used in ((0, (*lhs_contracting, *lhs_batch)), (1, (*rhs_contracting, *rhs_batch))):
        for d in range(sig.operands[tensor].rank):
            if d not in used:
                _in_blocks(b, sig, ((tensor, d),), (4, out), FactorKind.PASS_THROUGH)
                out += 1
    for left, right in zip(lhs_contracting, rhs_contracting, strict=True):
        _in_blocks(b, sig, ((0, left), (1, right)), None, FactorKind.REDUCTION)
    return b.build(reduction="sum" if lhs_contracting else "")


def _in_blocks(
    b: RuleBuilder,
    sig: Signature,
    places: Sequence[tuple[int, int]],
    result: tuple[int, int] | None,
    kind: FactorKind,
) -> None:
    """Factors of one dimension: cut wherever a scale has a block border, coarsest first."""
    shapes = sig.operands
    scales = [(t + 2, d) for t, d in places if shapes[t + 2].rank]
    total = shapes[places[0][0]].dims[places[0][1]]
    marks = sorted({1, total, *(shapes[t].dims[d] for t, d in scales)})
    if total == 0 or any(high % low for low, high in pairwise(marks)):
        b.add(total, [*places, *([result] if result else [])], FactorKind.NEED_REPLICATION)
        return
    for low, high in pairwise(marks) if total > 1 else ((1, 1),):
        mine = [(t, d) for t, d in scales if shapes[t].dims[d] >= high > 1]
        b.add(high // low, [*places, *mine, *([result] if result else [])], kind)


_DIMS = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")

RULES: Mapping[str, Row] = {
    "dot": FactorRow(_dot, _DIMS),
    "ragged-dot": FactorRow(_ragged_dot, (*_DIMS, "lhs_ragged_dims", "rhs_group_dims")),
    "scaled-dot": FactorRow(_scaled_dot, _DIMS),
}
