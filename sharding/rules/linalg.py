"""Factor rules of linear algebra, Fourier transforms and batch normalisation: batch dimensions pass through."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES", "whole_minor_dimensions"]


def whole_minor_dimensions(sig: Signature, count: int) -> FactorRule:
    """All arrays have the same rank; the last ``count`` dimensions of each must be whole.

    A dimension whose size changes gives its sharding to nobody.
    """
    b = sig.builder()
    shapes = (*sig.operands, *sig.results)
    rank = sig.operands[0].rank
    for d in range(rank - count):
        b.add(sig.operands[0].dims[d], [(t, d) for t in range(len(shapes))])
    for d in range(rank - count, rank):
        places = [(t, d) for t in range(len(shapes))]
        changed = any(s.dims[d] != sig.operands[0].dims[d] for s in shapes)
        b.add(sig.operands[0].dims[d], places, FactorKind.NEED_REPLICATION, blocked=changed)
    return b.build()


def _cholesky(sig: Signature) -> FactorRule:
    return whole_minor_dimensions(sig, 2)


def _triangular_solve(sig: Signature) -> FactorRule:
    """``a x = b`` by columns of b, or ``x a = b`` by rows; every one of those needs all of a.

    The solved dimension of b meets the rows of a on the left side, its columns on the right side (the other way
    round where a is transposed); that of x meets the other one.
    """
    left_side, transpose = sig.attrs
    a, rhs = sig.operands
    b = sig.builder()
    rank = a.rank
    for d in range(rank - 2):
        b.add(a.dims[d], [(0, d), (1, d), (2, d)])
    free, solved = (rank - 1, rank - 2) if left_side else (rank - 2, rank - 1)
    meets = [rank - 2, rank - 1]
    if bool(left_side) == (transpose in ("TRANSPOSE", "ADJOINT")):
        meets.reverse()
    if not left_side:
        b.add(rhs.dims[free], [(1, free), (2, free)])
    b.add(rhs.dims[solved], [(0, meets[0]), (1, solved)], FactorKind.NEED_REPLICATION)
    if left_side:
        b.add(rhs.dims[free], [(1, free), (2, free)])
    b.add(rhs.dims[solved], [(0, meets[1]), (2, solved)], FactorKind.NEED_REPLICATION)
    return b.build()


def _fft(sig: Signature) -> FactorRule:
    return whole_minor_dimensions(sig, len(sig.attrs[0]))


def _batch_norm(sig: Signature) -> FactorRule:
    """Only the feature dimension is independent; the statistics run over all others."""
    feature = sig.attrs[0]
    shapes = (*sig.operands, *sig.results)
    rank = sig.operands[0].rank
    b = sig.builder()
    for d, size in enumerate(sig.operands[0].dims):
        if d == feature:
            b.add(size, [(t, d if s.rank == rank else 0) for t, s in enumerate(shapes)])
        else:
            b.add(size, [(t, d) for t, s in enumerate(shapes) if s.rank == rank], FactorKind.NEED_REPLICATION)
    return b.build()


def _batch_norm_inference(sig: Signature) -> FactorRule:
    feature = sig.attrs[0]
    b = sig.builder()
    for d, size in enumerate(sig.operands[0].dims):
        if d == feature:
            b.add(size, [(0, d), (1, 0), (2, 0), (3, 0), (4, 0), (5, d)])
        else:
            b.add(size, [(0, d), (5, d)])
    return b.build()


RULES: Mapping[str, Row] = {
    "cholesky": FactorRow(_cholesky),
    "triangular-solve": FactorRow(_triangular_solve, ("left_side", "transpose_a")),
    "fft": FactorRow(_fft, ("fft_length",)),
    "batch-norm-training": FactorRow(_batch_norm, ("feature_index",)),
    "batch-norm-inference": FactorRow(_batch_norm_inference, ("feature_index",)),
    "batch-norm-grad": FactorRow(_batch_norm, ("feature_index",)),
}
