"""Factor rules of random numbers."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES"]


def _rng_bit_generator(sig: Signature) -> FactorRule:
    """The state stays whole; each dimension of the bits stands alone."""
    b = sig.builder()
    for d, size in enumerate(sig.operands[0].dims):
        b.add(size, [(0, d), (1, d)], FactorKind.NEED_REPLICATION, blocked=True)
    for d, size in enumerate(sig.results[1].dims):
        b.add(size, [(2, d)])
    return b.build()


def _alone(sig: Signature) -> FactorRule:
    b = sig.builder()
    result = len(sig.operands)
    for d, size in enumerate(sig.results[0].dims):
        b.add(size, [(result, d)])
    return b.build()


RULES: Mapping[str, Row] = {
    "rng": FactorRow(_alone),
    "rng-bit-generator": FactorRow(_rng_bit_generator),
    "rng-get-and-update-state": FactorRow(_alone),
}
