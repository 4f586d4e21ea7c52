"""Gather, scatter and dynamic slices.

Windows that are taken whole and batch dimensions run on shards. A gather from a split dimension that is picked
element by element looks up what each device owns, zero elsewhere, and sums (a vocabulary-sharded embedding). A
scatter into such a dimension shifts its indices, so that foreign rows are out of bounds and skipped; split updates
give partial results, the input counted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES, array_shape, tuple_shape
from shardc.partitioner.emit.emitter import COMBINERS, Emitter, identity_of
from shardc.partitioner.rewrite.body import Body, Handled
from shardc.partitioner.rules.dynamic import (
    as_type,
    clamp_start,
    dynamic_slice,
    dynamic_update_slice,
    from_whole_rule,
    inside,
    masked_slice,
    masked_slice_rule,
    sums_only,
    update_from_whole,
    updates_usable,
    write_from_whole,
)
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, linear_in_first, pass_or_reduce
from shardc.partitioner.strategy.values import Tree
from shardc.sharding.rules import factor_rule, rule_by_shape
from shardc.sharding.rules.factor_rule import Factor, FactorKind, FactorRule

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


def _gather(site: LocalSite) -> list[Instruction]:
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
    em = site.em
    indices, owned = _local_indices(site, picked)
    margins = [sizes[d] if d in picked and sizes[d] > 1 else 0 for d in range(len(sizes))]
    (made,) = site.emit([_with_margins(em, site.operands[0], margins), indices], slice_sizes=sizes)
    if owned is None:
        return [made]
    batch = tuple(d for d in range(made.shape.rank) if d not in attrs["offset_dims"])
    owned = em.reshape(owned, tuple(made.shape.dims[d] for d in batch))
    owned = em.add("broadcast", array_shape("pred", *made.shape.dims), owned, dimensions=batch)
    zero = em.splat(em.zero(made.shape.dtype), made.shape.dims)
    return [em.select(owned, made, zero)]


def _with_margins(em: Emitter, x: Instruction, margins: Sequence[int]) -> Instruction:
    """Zeros on both sides of dimensions, so that windows may begin or end outside."""
    if not any(margins):
        return x
    shape = x.shape.with_dims(tuple(n + 2 * m for n, m in zip(x.shape.dims, margins, strict=True)))
    return em.add("pad", shape, x, em.zero(x.shape.dtype), padding=tuple((m, m, 0) for m in margins))


def _local_indices(site: LocalSite, picked: list[int]) -> tuple[Instruction, Instruction | None]:
    """Start indices clamped as the gather would, relative to the own shard, and which of them it owns.

    A window of several elements reads zeros where the shard, within its margins of that size, has none.
    """
    em, attrs = site.em, site.op.attrs
    vector, components = attrs["index_vector_dim"], attrs["start_index_map"]
    parts: list[Instruction] = []
    owned: Instruction | None = None
    for k, d in enumerate(components):
        part = _component(em, site.operands[1], vector, k)
        part = clamp_start(em, part, site.operand_dims(0)[d] - attrs["slice_sizes"][d])
        if d in picked:
            chunk = site.operands[0].shape.dims[d]
            part = _shift(em, part, em.scale(em.coordinate(site.operand_atoms(0, d)), chunk))
            size = attrs["slice_sizes"][d]
            if size > 1:
                parts.append(em.add("add", part.shape, part, em.splat(em.index(size), part.shape.dims)))
                continue
            mine = inside(em, part, chunk)
            owned = mine if owned is None else em.add("and", mine.shape, owned, mine)
        parts.append(part)
    return (em.concatenate(parts, vector) if vector < site.operands[1].shape.rank else parts[0]), owned


def _component(em: Emitter, indices: Instruction, vector: int, k: int) -> Instruction:
    """Component ``k`` of index vectors, the vector dimension kept with size 1."""
    if vector == indices.shape.rank or indices.shape.dims[vector] == 1:
        return indices
    bounds = tuple((k, k + 1, 1) if d == vector else (0, n, 1) for d, n in enumerate(indices.shape.dims))
    shape = indices.shape.with_dims(tuple(stop - start for start, stop, _ in bounds))
    return em.add("slice", shape, indices, slice=bounds)


def _shift(em: Emitter, x: Instruction, start: Instruction) -> Instruction:
    start = as_type(em, start, x.shape.dtype)
    return em.add("subtract", x.shape, x, em.splat(start, x.shape.dims))


def _windows_rule(op: Instruction) -> FactorRule | None:
    """Windows that are neither whole nor single elements may start in any shard."""
    sizes, dims = op.attrs["slice_sizes"], op.operands[0].shape.dims
    cut = frozenset(d for d in op.attrs["start_index_map"] if 1 < sizes[d] < dims[d])
    return _sum(factor_rule(op), cut) if cut else None


@lru_cache(maxsize=4096)
def _sum(rule: FactorRule, cut: frozenset[int]) -> FactorRule:
    """``rule`` with the dimensions ``cut`` of operand 0 as reductions, apart from those of the result."""
    factors, (result,) = list(rule.factors), rule.results
    for d in sorted(cut):
        (f,) = rule.operands[0][d]
        alone = len(factors)
        factors.append(replace(factors[f], kind=FactorKind.NEED_REPLICATION))
        factors[f] = Factor(factors[f].size, FactorKind.REDUCTION)
        result = tuple((alone,) if indices == (f,) else indices for indices in result)
    return FactorRule(tuple(factors), rule.operands, (result,), "sum", rule.reason)


# -- scatter ---------------------------------------------------------------------------------------------------


def _scatter_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Inserted dimensions only where an index component tells the element."""
    fixed = set(op.attrs["inserted_window_dims"]) - set(op.attrs["scatter_dims_to_operand_dims"])
    whole = {f for d in fixed for f in rule.operands[0][d]}
    usable = set(rule.of_kind(FactorKind.PASS_THROUGH)) - whole
    moved = (rule.operands[0][d] for d in op.attrs["scatter_dims_to_operand_dims"])
    usable |= {f for (f,) in moved if rule.factors[f].kind is FactorKind.NEED_REPLICATION}
    if rule.reduction in ("sum", "max", "min", "multiply") and len(rule.results) == 1:
        usable |= set(rule.of_kind(FactorKind.REDUCTION))
    return frozenset(usable)


def _scatter(site: LocalSite) -> list[Instruction]:
    n = len(site.shapes)
    operands = list(site.operands)
    operands[n] = _scatter_indices(site, n)
    margins = [0] * operands[0].shape.rank
    for d, size in _split_windows(site, n).items():
        margins[d] = size - 1
    operands[:n] = [_with_margins(site.em, x, margins) for x in operands[:n]]
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
    return _scatter_masked(site, operands, margins)


def _scatter_masked(site: LocalSite, operands: list[Instruction], margins: Sequence[int]) -> list[Instruction]:
    """The scatter into operands with margins, which are cut off again."""
    if not any(margins):
        return site.emit(operands)
    em, n = site.em, len(site.shapes)
    shapes = [x.shape.plain for x in operands[:n]]
    if not site.op.shape.is_tuple:
        return [_without_margins(em, em.add("scatter", shapes[0], *operands, **site.op.attrs), margins)]
    made = em.add("scatter", tuple_shape(*shapes), *operands, **site.op.attrs)
    parts = (em.add("get-tuple-element", s, made, index=i) for i, s in enumerate(shapes))
    return [_without_margins(em, p, margins) for p in parts]


def _without_margins(em: Emitter, x: Instruction, margins: Sequence[int]) -> Instruction:
    if not any(margins):
        return x
    bounds = tuple((m, n - m, 1) for n, m in zip(x.shape.dims, margins, strict=True))
    return em.add("slice", x.shape.with_dims(tuple(stop - start for start, stop, _ in bounds)), x, slice=bounds)


def _update_dims(site: LocalSite, factor: int) -> list[int]:
    return [d for t, d in site.rule.places(factor) if t == 2]


def _split_windows(site: LocalSite, n: int) -> dict[int, int]:
    """Window sizes along split dimensions of the operand that the indices move windows along."""
    attrs, dims, updates = site.op.attrs, site.operand_dims(0), site.operand_dims(n + 1)
    batching = attrs.get("input_batching_dims") or ()
    window = [d for d in range(len(dims)) if d not in attrs["inserted_window_dims"] and d not in batching]
    sizes = dict.fromkeys(attrs["inserted_window_dims"], 1)
    sizes |= {d: updates[u] for d, u in zip(window, attrs["update_window_dims"], strict=True) if updates[u] != dims[d]}
    return {d: s for d, s in sizes.items() if d in attrs["scatter_dims_to_operand_dims"] and site.operand_atoms(0, d)}


def _scatter_indices(site: LocalSite, n: int) -> Instruction:
    """Indices relative to the own shard and its margins along split dimensions; foreign windows are out of bounds."""
    em, attrs, indices = site.em, site.op.attrs, site.operands[n]
    sizes = _split_windows(site, n)
    if not sizes:
        return indices
    vector = attrs["index_vector_dim"]
    parts: list[Instruction] = []
    for k, d in enumerate(attrs["scatter_dims_to_operand_dims"]):
        part = _component(em, indices, vector, k)
        part = as_type(em, part, DTYPES["s64"] if part.shape.dtype.bits == 64 else em.index_type)
        if d in sizes:
            chunk, given, margin = site.operands[0].shape.dims[d], part, sizes[d] - 1
            part = _shift(em, part, em.scale(em.coordinate(site.operand_atoms(0, d)), chunk))
            if margin:
                part = em.add("add", part.shape, part, em.splat(em.scalar(margin, part.shape.dtype), part.shape.dims))
                fits = inside(em, given, site.operand_dims(0)[d] - margin)
                part = em.select(fits, part, em.splat(em.scalar(-1, part.shape.dtype), part.shape.dims))
        parts.append(part)
    return em.concatenate(parts, vector) if vector < indices.shape.rank else parts[0]


def _scatter_linear(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Partial inputs with partial updates, where updates are added."""
    body = op.attrs["to_apply"].root
    simple = body.opcode == COMBINERS.get(reduction) and len(op.operands) == 3 and len(body.operands) == 2
    return ((0, 2),) if simple else ()


# -- dynamic slices --------------------------------------------------------------------------------------------


def _moved(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


def _moved_both(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0, 1),)


def _update(body: Body, op: Instruction) -> Tree:
    """A slice that is written where it was is taken from the shards that it is written to."""
    whole = update_from_whole(op)
    if whole is None:
        return body.partition_locally(op, _UPDATE)
    body.uses[whole] = body.uses.get(op, 1)
    return body.partition_locally(whole, _FROM_WHOLE)


_UPDATE = Local(
    "on shards; each merges its part of the update",
    dynamic_update_slice,
    updates_usable,
    _moved_both,
    rule_by_shape,
)
_FROM_WHOLE = Local("on shards, in place", write_from_whole, linear=_moved_both, rule=from_whole_rule)
_MASKED_SLICE = Local(
    "cut dimensions by masking and summing", masked_slice, pass_or_reduce, sums_only, rule=masked_slice_rule
)

RULES: Mapping[str, PartitionRow] = {
    "gather": Local(
        "on shards; picked dimensions by masking and summing",
        _gather,
        _gather_usable,
        linear_in_first,
        alternatives=(
            Local("windows over a split dimension too", _gather, _gather_usable, linear_in_first, rule=_windows_rule),
        ),
    ),
    "scatter": Local(
        "on shards; picked dimensions by shifted indices, split updates give partial results",
        _scatter,
        _scatter_usable,
        _scatter_linear,
        rule_by_shape,
    ),
    "dynamic-slice": Local(
        "on shards, cut dimensions whole", dynamic_slice, linear=_moved, alternatives=(_MASKED_SLICE,)
    ),
    "dynamic-update-slice": Handled(_UPDATE.summary, _update, _UPDATE),
}
