"""Gather, scatter and dynamic slices.

Windows that are taken whole and batch dimensions run on shards. A gather from a split dimension that is picked
element by element looks up what each device owns, zero elsewhere, and sums (a vocabulary-sharded embedding). A
scatter into such a dimension shifts its indices, so that foreign rows are out of bounds and skipped; split updates
give partial results, the input counted once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shardc.hlo.ir import Instruction
from shardc.hlo.types import DTYPES, DType, array_shape
from shardc.partitioner.emitter import COMBINERS, Emitter, identity_of
from shardc.partitioner.rules.rule import Local, Row, Site
from shardc.sharding.factors import FactorKind, FactorRule

__all__ = ["RULES"]


# -- gather ----------------------------------------------------------------------------------------------------


def _gather_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Picked dimensions too, where an index component tells the element."""
    usable = set(rule.of_kind(FactorKind.PASS_THROUGH))
    for f in rule.of_kind(FactorKind.REDUCTION):
        ((_, d),) = rule.places(f)
        if d in op.attrs["start_index_map"]:
            usable.add(f)
    return frozenset(usable)


def _gather(site: Site) -> list[Instruction]:
    attrs, layout = site.op.attrs, site.choice.operands[0]
    sizes = tuple(
        site.operands[0].shape.dims[d] if layout.dims[d] and s == n else s
        for d, (s, n) in enumerate(zip(attrs["slice_sizes"], site.operand_dims(0), strict=True))
    )
    batching = attrs.get("operand_batching_dims") or ()
    sizes = tuple(1 if d in batching else s for d, s in enumerate(sizes))
    reductions = {d for f in site.rule.of_kind(FactorKind.REDUCTION) for _, d in site.rule.places(f)}
    picked = [d for d in sorted(reductions) if layout.dims[d]]
    if not picked:
        return site.emit(slice_sizes=sizes)
    indices, owned = _local_indices(site, picked)
    (made,) = site.emit([site.operands[0], indices], slice_sizes=sizes)
    em = site.em
    batch = tuple(d for d in range(made.shape.rank) if d not in attrs["offset_dims"])
    owned = em.reshape(owned, tuple(made.shape.dims[d] for d in batch))
    owned = em.add("broadcast", array_shape("pred", *made.shape.dims), owned, dimensions=batch)
    zero = em.splat(em.scalar(0, made.shape.dtype), made.shape.dims)
    return [em.select(owned, made, zero)]


def _local_indices(site: Site, picked: list[int]) -> tuple[Instruction, Instruction]:
    """Start indices clamped as the gather would, relative to the own shard, and which of them it owns."""
    em, attrs = site.em, site.op.attrs
    vector, components = attrs["index_vector_dim"], attrs["start_index_map"]
    parts: list[Instruction] = []
    owned: Instruction | None = None
    for k, d in enumerate(components):
        part = _component(em, site.operands[1], vector, k)
        part = _clamped(em, part, site.operand_dims(0)[d] - attrs["slice_sizes"][d])
        if d in picked:
            chunk = site.operands[0].shape.dims[d]
            part = _shifted(em, part, em.scaled(em.coordinate(site.operand_atoms(0, d)), chunk))
            inside = _inside(em, part, chunk)
            owned = inside if owned is None else em.add("and", inside.shape, owned, inside)
        parts.append(part)
    assert owned is not None
    return (em.concatenate(parts, vector) if vector < site.operands[1].shape.rank else parts[0]), owned


def _component(em: Emitter, indices: Instruction, vector: int, k: int) -> Instruction:
    """Component ``k`` of index vectors, the vector dimension kept with size 1."""
    if vector == indices.shape.rank or indices.shape.dims[vector] == 1:
        return indices
    bounds = tuple((k, k + 1, 1) if d == vector else (0, n, 1) for d, n in enumerate(indices.shape.dims))
    shape = indices.shape.with_dims(tuple(stop - start for start, stop, _ in bounds))
    return em.add("slice", shape, indices, slice=bounds)


def _clamped(em: Emitter, x: Instruction, last: int) -> Instruction:
    """``x`` limited to 0..last, as 32-bit signed integers."""
    dtype = x.shape.dtype
    top = np.iinfo(dtype.numpy).max if dtype.bits >= 8 else last
    if last < top:
        limit = em.splat(em.scalar(last, dtype), x.shape.dims)
        x = em.add("minimum", x.shape, x, limit)
    x = _as(em, x, DTYPES["s32"])
    return em.add("maximum", x.shape, x, em.splat(em.index(0), x.shape.dims))


def _as(em: Emitter, x: Instruction, dtype: DType) -> Instruction:
    return x if x.shape.dtype is dtype else em.add("convert", x.shape.with_dtype(dtype), x)


def _shifted(em: Emitter, x: Instruction, start: Instruction) -> Instruction:
    start = _as(em, start, x.shape.dtype)
    return em.add("subtract", x.shape, x, em.splat(start, x.shape.dims))


def _inside(em: Emitter, x: Instruction, size: int) -> Instruction:
    """Is 0 <= x < size?"""
    shape = array_shape("pred", *x.shape.dims)
    low = em.add("compare", shape, x, em.splat(em.index(0), x.shape.dims), direction="GE")
    high = em.add("compare", shape, x, em.splat(em.index(size), x.shape.dims), direction="LT")
    return em.add("and", shape, low, high)


def _gather_linear(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),) if reduction == "sum" else ()


# -- scatter ---------------------------------------------------------------------------------------------------


def _scatter_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    usable = set(rule.of_kind(FactorKind.PASS_THROUGH))
    if rule.reduction in ("sum", "max", "min", "multiply") and len(rule.results) == 1:
        usable |= set(rule.of_kind(FactorKind.REDUCTION))
    return frozenset(usable)


def _scatter(site: Site) -> list[Instruction]:
    n = len(site.shapes)
    operands = list(site.operands)
    operands[n] = _scatter_indices(site, n)
    split = [
        d for f in site.rule.of_kind(FactorKind.REDUCTION) if site.choice.factors[f] for d in _update_dims(site, f)
    ]
    if split:
        atoms = tuple(a for d in split for a in site.operand_atoms(2, d))
        opcode = COMBINERS.get(site.rule.reduction, site.rule.reduction)
        dtype = operands[0].shape.dtype
        identity = site.em.scalar(identity_of(opcode, dtype), dtype)
        operands[2] = site.masked(2, split, identity)
        if opcode in ("add", "multiply", "xor"):
            operands[0] = site.em.keep_on_first(operands[0], atoms, identity)
    return site.emit(operands)


def _update_dims(site: Site, factor: int) -> list[int]:
    return [d for t, d in site.rule.places(factor) if t == 2]


def _scatter_indices(site: Site, n: int) -> Instruction:
    """Indices relative to the own shard along split dimensions that are picked element by element."""
    em, attrs, indices = site.em, site.op.attrs, site.operands[n]
    components = attrs["scatter_dims_to_operand_dims"]
    split = [d for d in attrs["inserted_window_dims"] if d in components and site.operand_atoms(0, d)]
    if not split:
        return indices
    vector = attrs["index_vector_dim"]
    parts: list[Instruction] = []
    for k, d in enumerate(components):
        part = _component(em, indices, vector, k)
        part = _as(em, part, DTYPES["s64" if part.shape.dtype.bits == 64 else "s32"])
        if d in split:
            chunk = site.operands[0].shape.dims[d]
            part = _shifted(em, part, em.scaled(em.coordinate(site.operand_atoms(0, d)), chunk))
        parts.append(part)
    return em.concatenate(parts, vector) if vector < indices.shape.rank else parts[0]


def _scatter_linear(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Partial inputs with partial updates, where updates are added."""
    body = op.attrs["to_apply"].root
    simple = body.opcode == COMBINERS.get(reduction) and len(op.operands) == 3 and len(body.operands) == 2
    return ((0, 2),) if simple else ()


# -- dynamic slices --------------------------------------------------------------------------------------------


def _dynamic_slice(site: Site) -> list[Instruction]:
    """Split dimensions are taken whole: their start is clamped to 0 whatever it is."""
    return site.emit(dynamic_slice_sizes=site.local_shape().dims)


def _moved(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


def _moved_both(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0, 1),)


RULES: Mapping[str, Row] = {
    "gather": Local("on shards; picked dimensions by masking and summing", _gather, _gather_usable, _gather_linear),
    "scatter": Local(
        "on shards; picked dimensions by shifted indices, split updates give partial results",
        _scatter,
        _scatter_usable,
        _scatter_linear,
    ),
    "dynamic-slice": Local("on shards, cut dimensions whole", _dynamic_slice, linear=_moved),
    "dynamic-update-slice": Local("on shards, updated dimensions whole", linear=_moved_both),
}
