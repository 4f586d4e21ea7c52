"""Top-k along a split dimension: the best of each shard are gathered, and the best of those are the answer."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType, tuple_shape
from shardc.partitioner.emit.layout import Atoms, AxisTable
from shardc.partitioner.rules.dynamic import as_type
from shardc.partitioner.strategy.choose import SplitProblem
from shardc.partitioner.strategy.rule import Local, LocalSite, always
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["TOP_OF_SHARDS"]


def _rule(op: Instruction) -> FactorRule | None:
    return _equation(op.operands[0].shape.dims, op.attrs["k"])


@lru_cache(maxsize=4096)
def _equation(dims: tuple[int, ...], k: int) -> FactorRule:
    """The searched dimension of the operand, which may be split, is another one than that of the results."""
    last = len(dims) - 1
    b = RuleBuilder([dims], [(*dims[:-1], k)] * 2)
    for d in range(last):
        b.add(dims[d], [(0, d), (1, d), (2, d)])
    b.add(dims[last], [(0, last)], FactorKind.PERMUTATION)
    b.add(k, [(1, last), (2, last)], FactorKind.NEED_REPLICATION)
    return b.build()


def _usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    return frozenset((*rule.of_kind(FactorKind.PASS_THROUGH), *rule.of_kind(FactorKind.PERMUTATION)))


def _sends(table: AxisTable, problem: SplitProblem, factors: tuple[Atoms, ...]) -> tuple[float, int]:
    """Two gathers: values, and positions of four bytes."""
    (searched,) = problem.rule.of_kind(FactorKind.PERMUTATION)
    g = table.extent(factors[searched])
    if g == 1:
        return (0.0, 0)
    dims, nbytes, _ = problem.results[0]
    count = min(dims[-1], -(-problem.rule.factors[searched].size // g))
    for f in problem.rule.of_kind(FactorKind.PASS_THROUGH):
        count *= -(-problem.rule.factors[f].size // table.extent(factors[f]))
    return (float(count * (nbytes + problem.results[1][1]) * (g - 1)), 2)


def _worst(dtype: DType, largest: bool) -> Any:
    """A value that comes last; equal ones of the array stand before it anyway, as padding is at the end."""
    if dtype.is_float:
        return np.copysign(np.nan, -1.0 if largest else 1.0)
    if dtype.kind == "pred":
        return not largest
    bounds = ml_dtypes.iinfo(dtype.numpy)
    return bounds.min if largest else bounds.max


def _emit(site: LocalSite) -> list[Instruction]:
    em, attrs = site.em, site.op.attrs
    last = site.operands[0].shape.rank - 1
    atoms = site.operand_atoms(0, last)
    if not atoms:
        return site.emit()
    dtype, positions = site.shapes[0].dtype, site.shapes[1].dtype
    x = site.masked(0, (last,), em.scalar(_worst(dtype, attrs.get("largest", True)), dtype))
    chunk = x.shape.dims[last]
    few = (*x.shape.dims[:last], min(attrs["k"], chunk))
    shapes = (x.shape.with_dims(few).plain, site.shapes[1].with_dims(few).plain)
    own = em.add("topk", tuple_shape(*shapes), x, **{**attrs, "k": few[last]})
    values, places = (em.add("get-tuple-element", s, own, index=i) for i, s in enumerate(shapes))
    start = as_type(em, em.scale(em.coordinate(atoms), chunk), positions)
    places = em.add("add", places.shape, places, em.splat(start, few))
    values, places = (em.all_gather(v, last, atoms) for v in (values, places))
    best, which = site.emit([values])
    return [best, _taken(site, places, which)]


def _taken(site: LocalSite, x: Instruction, which: Instruction) -> Instruction:
    """The elements of ``x`` at the positions ``which`` of its last dimension."""
    last = x.shape.rank - 1
    batch = tuple(range(last))
    return site.em.add(
        "gather",
        x.shape.with_dims(which.shape.dims),
        x,
        site.em.reshape(which, (*which.shape.dims, 1)),
        offset_dims=(),
        collapsed_slice_dims=(last,),
        start_index_map=(last,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
        index_vector_dim=last + 1,
        slice_sizes=(1,) * (last + 1),
    )


TOP_OF_SHARDS = Local("the best of every shard gathered", _emit, _usable, rule=_rule, sends=always(_sends))
"""A way for top-k whose searched dimension is split."""
