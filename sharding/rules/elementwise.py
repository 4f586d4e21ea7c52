"""Factor rules of elementwise ops: every dimension of the result runs over the same dimension of every operand."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.opset import OPS
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES", "pointwise"]


def pointwise(sig: Signature) -> FactorRule:
    """One pass-through factor per dimension; scalar operands (a select's predicate, a clamp's bounds) have none."""
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    rank = max((s.rank for s in shapes), default=0)
    tensors = [t for t, s in enumerate(shapes) if s.rank == rank]
    for d in range(rank):
        b.add(shapes[tensors[0]].dims[d], [(t, d) for t in tensors])
    return b.build()


def _bitcast_convert(sig: Signature) -> FactorRule:
    """A dimension that holds the parts of one wider element cannot be split."""
    operand, result = sig.operands[0], sig.results[0]
    b = sig.builder()
    for d in range(min(operand.rank, result.rank)):
        b.add(operand.dims[d], [(0, d), (1, d)])
    if operand.rank != result.rank:
        tensor, shape = (0, operand) if operand.rank > result.rank else (1, result)
        b.add(shape.dims[-1], [(tensor, shape.rank - 1)], FactorKind.NEED_REPLICATION)
    return b.build()


def _table() -> dict[str, Row]:
    rows: dict[str, Row] = {o: FactorRow(pointwise) for o, op in OPS.items() if op.family == "elementwise"}
    rows["bitcast-convert"] = FactorRow(_bitcast_convert)
    return rows


RULES: Mapping[str, Row] = _table()
