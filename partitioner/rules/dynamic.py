"""Dynamic slices and updates along split dimensions, without gathering the array.

The start is clamped as the whole array would have it and taken relative to the own shard. A slice keeps what the
shard owns of the window, zero elsewhere, and the shards' parts add up. An update is merged into the window of the
shard that it can touch; only elements that the update covers change.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.make import scalar_value
from shardc.hlo.ir.types import DTYPES, DType, array_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.strategy.rule import LocalSite
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = [
    "as_type",
    "clamp_start",
    "dynamic_slice",
    "dynamic_update_slice",
    "from_whole_rule",
    "inside",
    "masked_slice",
    "masked_slice_rule",
    "sums_only",
    "update_from_whole",
    "updates_usable",
    "write_from_whole",
]


# -- index arithmetic --------------------------------------------------------------------------------------------


def as_type(em: Emitter, x: Instruction, dtype: DType) -> Instruction:
    """``x`` converted, or as it is."""
    return x if x.shape.dtype is dtype else em.add("convert", x.shape.with_dtype(dtype), x)


def clamp_start(em: Emitter, x: Instruction, last: int) -> Instruction:
    """``x`` limited to 0..last, of the index type."""
    dtype = x.shape.dtype
    top = np.iinfo(dtype.numpy).max if dtype.bits >= 8 else last
    if last < top:
        x = em.add("minimum", x.shape, x, em.splat(em.scalar(last, dtype), x.shape.dims))
    x = as_type(em, x, em.index_type)
    return em.add("maximum", x.shape, x, em.splat(em.index(0), x.shape.dims))


def inside(em: Emitter, x: Instruction, size: int) -> Instruction:
    """Whether 0 <= x < size. As unsigned numbers, negative ones are the largest, so one comparison checks both."""
    dtype = x.shape.dtype
    if dtype.kind == "signed":
        dtype = DTYPES[f"u{dtype.bits}"]
        x = em.add("bitcast-convert", x.shape.with_dtype(dtype), x)
    limit = em.splat(em.scalar(size, dtype), x.shape.dims)
    return em.add("compare", array_shape("pred", *x.shape.dims), x, limit, direction="LT")


def _minus(em: Emitter, x: Instruction, y: Instruction) -> Instruction:
    return em.add("subtract", x.shape, x, y)


def _relative_start(site: LocalSite, dim: int, start: Instruction, size: int) -> Instruction:
    """Where a window of ``size`` begins along ``dim`` of operand 0, counted from the own shard's first element."""
    em, chunk = site.em, site.operands[0].shape.dims[dim]
    start = clamp_start(em, start, site.operand_dims(0)[dim] - size)
    return _minus(em, start, em.scale(em.coordinate(site.operand_atoms(0, dim)), chunk))


def _with(dims: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*dims[:dim], size, *dims[dim + 1 :])


def _window(em: Emitter, x: Instruction, dim: int, start: Instruction, size: int) -> Instruction:
    """``size`` elements of ``x`` from any scalar ``start``; zero where ``x`` has none."""
    n = x.shape.dims[dim]
    padding = tuple((size, size, 0) if d == dim else (0, 0, 0) for d in range(x.shape.rank))
    zero = em.zero(x.shape.dtype)
    padded = em.add("pad", x.shape.with_dims(_with(x.shape.dims, dim, n + 2 * size)), x, zero, padding=padding)
    return em.dynamic_slice(padded, dim, em.add("add", start.shape, start, em.index(size)), size)


# -- slices ------------------------------------------------------------------------------------------------------


def dynamic_slice(site: LocalSite) -> list[Instruction]:
    """Split dimensions are taken whole: their start is clamped to 0 whatever it is."""
    return site.emit(dynamic_slice_sizes=site.local_shape().dims)


def masked_slice_rule(op: Instruction) -> FactorRule | None:
    """A cut dimension of the operand is summed over; that of the result stays whole. Starts are scalars, no vector."""
    x = op.operands[0].shape
    if x.dims == op.shape.dims or op.operands[1].shape.rank:
        return None
    return _masked_slice_rule(x.dims, op.shape.dims, len(op.operands), op.shape.dtype.kind == "pred")


@lru_cache(maxsize=4096)
def _masked_slice_rule(dims: tuple[int, ...], sizes: tuple[int, ...], operands: int, truth: bool) -> FactorRule:
    b = RuleBuilder([dims, *[()] * (operands - 1)], [sizes])
    for d, (n, size) in enumerate(zip(dims, sizes, strict=True)):
        if n == size:
            b.add(n, [(0, d), (operands, d)])
        else:
            b.add(n, [(0, d)], FactorKind.REDUCTION)
            b.add(size, [(operands, d)], FactorKind.NEED_REPLICATION)
    return b.build(reduction="max" if truth else "sum")


def masked_slice(site: LocalSite) -> list[Instruction]:
    """The own part of the window; the rest is zero."""
    em, sizes = site.em, site.local_shape().dims
    reduced = {d for f in site.rule.of_kind(FactorKind.REDUCTION) for _, d in site.rule.places(f)}
    split = [d for d in sorted(reduced) if site.operand_atoms(0, d)]
    x, starts = site.operands[0], list(site.operands[1:])
    kept, offsets = sizes, {}
    for d in split:
        chunk = x.shape.dims[d]
        width = min(sizes[d], chunk)
        offsets[d] = _relative_start(site, d, starts[d], sizes[d])
        starts[d] = clamp_start(em, offsets[d], chunk - width)
        kept = _with(kept, d, width)
    starts = _one_type(em, starts)
    part = em.add("dynamic-slice", x.shape.with_dims(kept), x, *starts, dynamic_slice_sizes=kept)
    for d in split:
        if sizes[d] > 1:
            part = _window(em, part, d, _minus(em, offsets[d], as_type(em, starts[d], em.index_type)), sizes[d])
        else:
            mine = em.splat(inside(em, offsets[d], x.shape.dims[d]), part.shape.dims)
            part = em.select(mine, part, em.splat(em.zero(x.shape.dtype), part.shape.dims))
    return [part]


def _scalars(em: Emitter, starts: list[Instruction]) -> list[Instruction]:
    """Start indices one by one, which older texts give as one vector."""
    if not starts or not starts[0].shape.rank:
        return starts
    (vector,) = starts
    one = array_shape(vector.shape.dtype, 1)
    parts = [em.add("slice", one, vector, slice=((d, d + 1, 1),)) for d in range(vector.shape.dims[0])]
    return [em.reshape(p, ()) for p in parts]


def _one_type(em: Emitter, starts: list[Instruction]) -> list[Instruction]:
    """Start indices of one type: 32-bit ones where any of them was made here."""
    types = {s.shape.dtype for s in starts}
    if len(types) <= 1:
        return starts
    return [clamp_start(em, s, np.iinfo(np.int32).max) for s in starts]


def sums_only(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Partial sums stay partial; truth values are combined by maximum."""
    return ((0,),) if reduction == ("max" if op.shape.dtype.kind == "pred" else "sum") else ()


# -- updates -----------------------------------------------------------------------------------------------------


def updates_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Updated dimensions of the array too; those of the update stay whole."""
    moved = (f for f in rule.of_kind(FactorKind.PERMUTATION) if any(t == 0 for t, _ in rule.places(f)))
    return frozenset((*rule.of_kind(FactorKind.PASS_THROUGH), *moved))


def _covered(em: Emitter, offset: Instruction, width: int, size: int) -> Instruction:
    """Which of ``width`` elements from ``offset`` on are among the first ``size``."""
    place = em.add(
        "add", array_shape(em.index_type, width), em.global_index((width,), 0, ()), em.splat(offset, (width,))
    )
    return inside(em, place, size)


def dynamic_update_slice(site: LocalSite) -> list[Instruction]:
    """The update where it touches the own shard."""
    x, update, starts = site.operands[0], site.operands[1], list(site.operands[2:])
    updated = site.op.operands[1].shape.dims
    split = [d for d, n in enumerate(site.operand_dims(0)) if site.operand_atoms(0, d) and n != updated[d]]
    if not split:
        return site.emit()
    em = site.em
    starts = _scalars(em, starts)
    window, offsets = update.shape.dims, {}
    for d in split:
        chunk = x.shape.dims[d]
        width = min(updated[d], chunk)
        offset = _relative_start(site, d, starts[d], updated[d])
        starts[d] = clamp_start(em, offset, chunk - width)
        offsets[d] = _minus(em, starts[d], offset)
        window = _with(window, d, width)
    starts = _one_type(em, starts)
    old = em.add("dynamic-slice", x.shape.with_dims(window), x, *starts, dynamic_slice_sizes=window)
    covered: Instruction | None = None
    for d in split:
        if updated[d] > 1:
            update = _window(em, update, d, offsets[d], window[d])
        mine = em.add(
            "broadcast", array_shape("pred", *window), _covered(em, offsets[d], window[d], updated[d]), dimensions=(d,)
        )
        covered = mine if covered is None else em.add("and", mine.shape, covered, mine)
    assert covered is not None
    return site.emit([x, em.select(covered, update, old), *starts])


# -- updates at known places from whole arrays -------------------------------------------------------------------

#: Attribute of an update whose operand 1 has the array's extent along dimensions: (dimension, first, size) of what is
#: taken of it there and written at the same place.
_REGION = "region"


def update_from_whole(op: Instruction) -> Instruction | None:
    """The update with the array that its operand 1 is a slice of, where it takes from that what it writes over."""
    x, update, *starts = op.operands
    known = [scalar_value(s) for s in starts]
    if update.opcode != "slice" or len(known) != op.shape.rank or any(v is None for v in known):
        return None
    whole, bounds = update.operands[0], update.attrs["slice"]
    region = tuple((d, low, n) for d, (n, (low, _, _)) in enumerate(zip(update.shape.dims, bounds, strict=True))
                   if n != whole.shape.dims[d])  # fmt: skip
    if any(bounds[d][2] != 1 or whole.shape.dims[d] != op.shape.dims[d] or known[d] != low for d, low, _ in region):
        return None
    return op.replace(operands=(x, whole, *starts), attrs={**op.attrs, _REGION: region})


def from_whole_rule(op: Instruction) -> FactorRule:
    """Along the region's dimensions both arrays are split alike."""
    return _from_whole(op.shape.dims, op.operands[1].shape.dims, len(op.operands))


@lru_cache(maxsize=4096)
def _from_whole(dims: tuple[int, ...], whole: tuple[int, ...], operands: int) -> FactorRule:
    b = RuleBuilder([dims, whole, *[()] * (operands - 2)], [dims])
    for d, (n, size) in enumerate(zip(dims, whole, strict=True)):
        if n == size:
            b.add(n, [(0, d), (1, d), (operands, d)])
        else:
            b.add(n, [(0, d), (operands, d)], FactorKind.NEED_REPLICATION)
            b.add(size, [(1, d)], FactorKind.NEED_REPLICATION)
    return b.build()


def write_from_whole(site: LocalSite) -> list[Instruction]:
    """Of the region what lies on the own shard; the window is as large as the largest of such parts."""
    em, (x, whole, *starts) = site.em, site.operands
    places, taken, window = list(starts), [em.index(0) for _ in starts], whole.shape.dims
    covered: Instruction | None = None
    limits: list[tuple[int, Instruction, int]] = []
    for d, first, size in site.op.attrs[_REGION]:
        chunk, width = x.shape.dims[d], size
        if site.operand_atoms(0, d):
            width = min(size, chunk)
            offset = _relative_start(site, d, starts[d], size)
            places[d] = clamp_start(em, offset, chunk - width)
            limits.append((d, _minus(em, places[d], offset), size))
        else:
            places[d] = em.index(first)
        taken[d] = places[d]
        window = _with(window, d, width)
    places, taken = _one_type(em, places), _one_type(em, taken)
    new = em.add("dynamic-slice", whole.shape.with_dims(window), whole, *taken, dynamic_slice_sizes=window)
    old = em.add("dynamic-slice", x.shape.with_dims(window), x, *places, dynamic_slice_sizes=window)
    for d, offset, size in limits:
        mine = _covered(em, offset, window[d], size)
        mine = em.add("broadcast", array_shape("pred", *window), mine, dimensions=(d,))
        covered = mine if covered is None else em.add("and", mine.shape, covered, mine)
    new = new if covered is None else em.select(covered, new, old)
    return [em.add("dynamic-update-slice", x.shape.plain, x, new, *places)]
