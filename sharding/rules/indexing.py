"""Factor rules of gather, scatter and dynamic slices.

Batching dimensions and window dimensions that are taken whole pass through. A dimension that is indexed element by
element (window size 1) can be sharded by masking: each shard contributes the rows it owns, so for a gather it is a
reduction, and for a scatter it passes through. The index dimensions of a scatter are a reduction: each shard of
updates makes a partial result, if the update computation can combine them (an overwriting one cannot).
"""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import splat_source
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES"]


def _gather(sig: Signature) -> FactorRule:
    """Factors in the order of the result's dimensions, then of those that it lacks."""
    operand, indices, result = sig.operands[0], sig.operands[1], sig.results[0]
    offset, collapsed, operand_batching, indices_batching, vector, _ = sig.attrs
    batching = dict(zip(indices_batching or (), operand_batching or (), strict=True))
    rows = iter(d for d in range(indices.rank) if d != vector)
    window = iter(d for d in range(operand.rank) if d not in collapsed and d not in batching.values())
    b = sig.builder()
    for out, size in enumerate(result.dims):
        if out not in offset:
            row = next(rows)
            b.add(size, [*((0, o) for i, o in batching.items() if i == row), (1, row), (2, out)])
            continue
        d = next(window)
        if size == operand.dims[d]:
            b.add(size, [(0, d), (2, out)])
        elif size == 1:
            b.add(operand.dims[d], [(0, d)], FactorKind.REDUCTION)
            b.add(1, [(2, out)], FactorKind.NEED_REPLICATION)
        else:
            b.add(operand.dims[d], [(0, d), (2, out)], FactorKind.NEED_REPLICATION, blocked=True)
    for d in collapsed:
        single = operand.dims[d] == 1
        b.add(operand.dims[d], [(0, d)], FactorKind.NEED_REPLICATION if single else FactorKind.REDUCTION)
    if vector < indices.rank:
        b.add(indices.dims[vector], [(1, vector)], FactorKind.NEED_REPLICATION)
    reduces = any(f.kind is FactorKind.REDUCTION for f in b.factors)
    return b.build(reduction="sum" if reduces else "")


def _scatter(sig: Signature) -> FactorRule:
    """Operands are n inputs, the indices, n updates; factors in the order of the updates' dimensions, as a gather's."""
    window_dims, inserted, input_batching, indices_batching, vector, kind, *fills = sig.attrs
    batching = dict(zip(indices_batching or (), input_batching or (), strict=True))
    n = len(sig.results)
    operand, indices, update = sig.operands[0], sig.operands[n], sig.operands[n + 1]
    inputs = [*range(n), *range(2 * n + 1, 3 * n + 1)]
    updates = list(range(n + 1, 2 * n + 1))
    rows = iter(d for d in range(indices.rank) if d != vector)
    window = iter(d for d in range(operand.rank) if d not in inserted and d not in batching.values())
    partial = FactorKind.REDUCTION if kind else FactorKind.NEED_REPLICATION
    b = sig.builder()
    for u, size in enumerate(update.dims):
        mine = [(t, u) for t in updates]
        if u not in window_dims:
            row = next(rows)
            own = [(t, batching[row]) for t in inputs] if row in batching else []
            b.add(size, [*own, (n, row), *mine], FactorKind.PASS_THROUGH if own else partial)
            continue
        d = next(window)
        into = [(t, d) for t in inputs]
        if size == operand.dims[d]:
            b.add(size, [*into, *mine])
        elif fills and fills[0] and 2 * size >= operand.dims[d]:
            b.add(operand.dims[d], [*into, *mine], FactorKind.PERMUTATION)
        else:
            b.add(operand.dims[d], into, FactorKind.NEED_REPLICATION)
            b.add(size, mine, FactorKind.NEED_REPLICATION)
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
        elif any(sig.attrs) and 2 * update.dims[d] >= size:
            b.add(size, [(0, d), (1, d), (out, d)], FactorKind.PERMUTATION)
        else:
            b.add(size, [(0, d), (out, d)], FactorKind.PERMUTATION)
            b.add(update.dims[d], [(1, d)], FactorKind.PERMUTATION)
    return b.build()


def _fills_splat(i: Instruction) -> tuple[bool]:
    """Whether all elements of the array are the same before the update. What an update of most of it leaves is then its
    padding, and the array is laid out as the update."""
    return (splat_source(i.operands[0]) is not None and i.operands[0].shape.rank > 0,)


RULES: Mapping[str, Row] = {
    "gather": FactorRow(
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
    "scatter": FactorRow(
        _scatter,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "index_vector_dim",
            "to_apply",
        ),
        _fills_splat,
    ),
    "dynamic-slice": FactorRow(_dynamic_slice),
    "dynamic-update-slice": FactorRow(_dynamic_update_slice, (), _fills_splat),
}
