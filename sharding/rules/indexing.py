"""Factor rules of gather, scatter and dynamic slices.

Batching dimensions and window dimensions that are taken whole pass through. A dimension that is indexed element by
element (window size 1) can be sharded by masking: each shard contributes the rows it owns, so for a gather it is a
reduction, and for a scatter it passes through. The index dimensions of a scatter are a reduction: each shard of
updates makes a partial result, if the update computation can combine them (an overwriting one cannot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.sharding.factors import FactorKind, FactorRule, RuleBuilder
from shardc.sharding.rules.signature import Row, Rule, Signature

__all__ = ["RULES"]


def _batch_factors(
    b: RuleBuilder,
    indices: tuple[int, Sequence[int], int],
    other: tuple[Sequence[int], Sequence[int]],
    batching: Mapping[int, list[tuple[int, int]]],
    kind: FactorKind,
) -> None:
    """One factor per index dimension.

    ``indices`` is (tensor, dimensions, index vector dimension); ``other`` the tensors with a matching batch part and
    that part's dimensions there; ``batching`` gives the operand places of explicit batching dimensions.
    """
    tensor, dims, vector = indices
    tensors, positions = other
    batch = [d for d in range(len(dims)) if d != vector]
    for d, position in zip(batch, positions, strict=True):
        places = [*batching.get(d, []), (tensor, d), *((t, position) for t in tensors)]
        b.add(dims[d], places, FactorKind.PASS_THROUGH if d in batching else kind)


def _gather(sig: Signature) -> FactorRule:
    operand, indices, result = sig.operands[0], sig.operands[1], sig.results[0]
    offset, collapsed, operand_batching, indices_batching, vector, sizes = sig.attrs
    operand_batching, indices_batching = operand_batching or (), indices_batching or ()
    b = sig.builder()
    batching = {i: [(0, o)] for o, i in zip(operand_batching, indices_batching, strict=True)}
    batch = [d for d in range(result.rank) if d not in offset]
    _batch_factors(b, (1, indices.dims, vector), ([2], batch), batching, FactorKind.PASS_THROUGH)
    window = [d for d in range(operand.rank) if d not in collapsed and d not in operand_batching]
    picked = list(collapsed)
    for d, out in zip(window, offset, strict=True):
        if sizes[d] == operand.dims[d]:
            b.add(operand.dims[d], [(0, d), (2, out)])
        elif sizes[d] == 1:
            picked.append(d)
            b.add(1, [(2, out)], FactorKind.NEED_REPLICATION)
        else:
            b.add(operand.dims[d], [(0, d), (2, out)], FactorKind.NEED_REPLICATION, blocked=True)
    for d in sorted(picked):
        b.add(operand.dims[d], [(0, d)], FactorKind.REDUCTION)
    if vector < indices.rank:
        b.add(indices.dims[vector], [(1, vector)], FactorKind.NEED_REPLICATION)
    return b.build(reduction="sum" if picked else "")


def _scatter(sig: Signature) -> FactorRule:
    """Operands are n inputs, the indices, n updates."""
    window_dims, inserted, input_batching, indices_batching, vector, kind = sig.attrs
    input_batching, indices_batching = input_batching or (), indices_batching or ()
    n = len(sig.results)
    operand, indices, update = sig.operands[0], sig.operands[n], sig.operands[n + 1]
    inputs = [*range(n), *range(2 * n + 1, 3 * n + 1)]
    updates = list(range(n + 1, 2 * n + 1))
    b = sig.builder()
    batching = {i: [(t, o) for t in inputs] for o, i in zip(input_batching, indices_batching, strict=True)}
    batch = [d for d in range(update.rank) if d not in window_dims]
    partial = FactorKind.REDUCTION if kind else FactorKind.NEED_REPLICATION
    _batch_factors(b, (n, indices.dims, vector), (updates, batch), batching, partial)
    window = [d for d in range(operand.rank) if d not in inserted and d not in input_batching]
    for d, u in zip(window, window_dims, strict=True):
        if update.dims[u] == operand.dims[d]:
            b.add(operand.dims[d], [(t, d) for t in inputs] + [(t, u) for t in updates])
        else:
            b.add(operand.dims[d], [(t, d) for t in inputs], FactorKind.NEED_REPLICATION)
            b.add(update.dims[u], [(t, u) for t in updates], FactorKind.NEED_REPLICATION)
    for d in inserted:
        b.add(operand.dims[d], [(t, d) for t in inputs])
    if vector < indices.rank:
        b.add(indices.dims[vector], [(n, vector)], FactorKind.NEED_REPLICATION)
    return b.build(reduction=kind)


def _dynamic_slice(sig: Signature) -> FactorRule:
    """Scalar start indices have no dimensions; a dimension that is cut needs the whole operand."""
    operand, result = sig.operands[0], sig.results[0]
    b = sig.builder()
    out = len(sig.operands)
    for d, size in enumerate(operand.dims):
        whole = result.dims[d] == size
        kind = FactorKind.PASS_THROUGH if whole else FactorKind.NEED_REPLICATION
        b.add(size, [(0, d), (out, d)], kind, blocked=not whole)
    return b.build()


def _dynamic_update_slice(sig: Signature) -> FactorRule:
    operand, update = sig.operands[0], sig.operands[1]
    b = sig.builder()
    out = len(sig.operands)
    for d, size in enumerate(operand.dims):
        if update.dims[d] == size:
            b.add(size, [(0, d), (1, d), (out, d)])
        else:
            b.add(size, [(0, d), (out, d)], FactorKind.PERMUTATION)
            b.add(update.dims[d], [(1, d)], FactorKind.PERMUTATION)
    return b.build()


RULES: Mapping[str, Row] = {
    "gather": Rule(
        _gather,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "index_vector_dim",
            "slice_sizes",
        ),
    ),
    "scatter": Rule(
        _scatter,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "index_vector_dim",
            "to_apply",
        ),
    ),
    "dynamic-slice": Rule(_dynamic_slice),
    "dynamic-update-slice": Rule(_dynamic_update_slice),
}
