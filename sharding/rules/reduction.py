"""Factor rules of reductions, sorts and scans."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.factors import FactorKind, FactorRule
from shardc.sharding.rules.signature import Row, Rule, Signature

__all__ = ["RULES", "along_one_dimension"]


def _reduce(sig: Signature) -> FactorRule:
    """Operands are n inputs, then n scalar initial values; the reduced dimensions are reductions."""
    dimensions, kind = sig.attrs
    n = len(sig.results)
    b = sig.builder()
    out = 0
    for d, size in enumerate(sig.operands[0].dims):
        inputs = [(t, d) for t in range(n)]
        if d in dimensions:
            b.add(size, inputs, FactorKind.REDUCTION)
        else:
            b.add(size, inputs + [(2 * n + t, out) for t in range(n)])
            out += 1
    return b.build(reduction=kind)


def along_one_dimension(sig: Signature, dim: int, *, blocked: bool = False) -> FactorRule:
    """All arrays agree on the dimensions, but for ``dim``, which must be whole (its size may differ)."""
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    for d, size in enumerate(sig.operands[0].dims):
        places = [(t, d) for t, s in enumerate(shapes) if s.rank]
        if d == dim:
            b.add(size, places, FactorKind.NEED_REPLICATION, blocked=blocked)
        else:
            b.add(size, places)
    return b.build()


def _sort(sig: Signature) -> FactorRule:
    return along_one_dimension(sig, sig.attrs[0][0])


def _topk(sig: Signature) -> FactorRule:
    return along_one_dimension(sig, sig.operands[0].rank - 1, blocked=True)


def _scan(sig: Signature) -> FactorRule:
    """Inputs and outputs have the scanned dimension, initial values and carries lack it."""
    dimension = (sig.attrs[0] or (0,))[0]
    shapes = (*sig.operands, *sig.results)
    rank = max(s.rank for s in shapes)
    long = [t for t, s in enumerate(shapes) if s.rank == rank]
    short = [t for t, s in enumerate(shapes) if s.rank == rank - 1]
    b = sig.builder()
    for d, size in enumerate(shapes[long[0]].dims):
        places = [(t, d) for t in long]
        if d == dimension:
            b.add(size, places, FactorKind.NEED_REPLICATION)
        else:
            b.add(size, places + [(t, d - (d > dimension)) for t in short])
    return b.build()


RULES: Mapping[str, Row] = {
    "reduce": Rule(_reduce, ("dimensions", "to_apply")),
    "topk": Rule(_topk),
    "sort": Rule(_sort, ("dimensions",)),
    "scan": Rule(_scan, ("dimensions",)),
}
