"""Convolutions and windowed reductions on shards of every dimension, windows fetching what lies beyond their shard.

A convolution splits batch, features (input features: partial results), whole groups, and along every windowed
dimension either output positions (forward and input gradients) or kernel positions (weight gradients: partial
results), whichever reads less from neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import DType
from shardc.partitioner.emit.emitter import identity_of
from shardc.partitioner.reshard.halo import SplitLine, by_position, fetch, fetch_dilated
from shardc.partitioner.rules.cumulative import CUMULATIVE, not_cumulative_rule
from shardc.partitioner.rules.readings import Exchanges, KernelPart, Outputs, Touching, whole_source
from shardc.partitioner.rules.reduction import same_reduction
from shardc.partitioner.rules.shape import moved_dims, moving_factors, non_empty
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, linear_in_each
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder

__all__ = ["RULES", "passed_over", "plain_reducer"]

_LHS, _RHS, _OUT = 0, 1, 2
_ELEMENT = WindowDim(1)

# -- convolution -----------------------------------------------------------------------------------------------


def _convolution_rule(op: Instruction) -> FactorRule:
    shapes = (op.operands[0].shape.dims, op.operands[1].shape.dims, op.shape.dims)
    groups = (op.attrs.get("feature_group_count") or 1, op.attrs.get("batch_group_count") or 1)
    return _convolution_equation(shapes, op.attrs["dim_labels"], _window(op).dims, groups)


def _window(op: Instruction) -> Window:
    given: Window | None = op.attrs.get("window")
    labels: ConvDims = op.attrs["dim_labels"]
    return given if given is not None else Window((_ELEMENT,) * len(labels.lhs_spatial))


@lru_cache(maxsize=4096)
def _convolution_equation(
    shapes: tuple[tuple[int, ...], ...], dims: ConvDims, window: tuple[WindowDim, ...], groups: tuple[int, int]
) -> FactorRule:
    """As propagation's, but a windowed dimension of the input is shared with one of output and kernel only."""
    lhs, rhs, out = shapes
    feature_groups, batch_groups = groups
    b = RuleBuilder((lhs, rhs), (out,))
    out_features = (_OUT, dims.out_feature)
    per_group = rhs[dims.rhs_output_feature] // max(groups)
    if batch_groups > 1:
        b.add(batch_groups, [(_LHS, dims.lhs_batch), (_RHS, dims.rhs_output_feature), out_features])
    if feature_groups > 1:
        b.add(feature_groups, [(_LHS, dims.lhs_feature), (_RHS, dims.rhs_output_feature), out_features])
    batch = [(_LHS, dims.lhs_batch), (_OUT, dims.out_batch)]
    b.add(out[dims.out_batch], batch[1:] if batch_groups > 1 and out[dims.out_batch] == 1 else batch)
    for w, x, k, o in zip(window, dims.lhs_spatial, dims.rhs_spatial, dims.out_spatial, strict=True):
        if _by_kernel(w, out[o]):
            b.add(rhs[k], [(_LHS, x), (_RHS, k)], FactorKind.REDUCTION)
            b.add(out[o], [(_OUT, o)], FactorKind.NEED_REPLICATION, blocked=True)
        else:
            b.add(out[o], [(_LHS, x), (_OUT, o)], FactorKind.PERMUTATION)
            b.add(rhs[k], [(_RHS, k)], FactorKind.NEED_REPLICATION, blocked=True)
    features = [(_LHS, dims.lhs_feature), (_RHS, dims.rhs_input_feature)]
    reduced = rhs[dims.rhs_input_feature]
    b.add(reduced, features if reduced > 1 or feature_groups == 1 else features[1:], FactorKind.REDUCTION)
    if per_group > 1 or max(groups) == 1:
        b.add(per_group, [(_RHS, dims.rhs_output_feature), out_features])
    return b.build(reduction="sum")


def _by_kernel(w: WindowDim, out: int) -> bool:
    """Whether neighbouring parts of the kernel overlap less in the input than neighbouring parts of the output."""
    return (w.size - 1) * w.rhs_dilate - w.stride > (out - 1) * w.stride - w.rhs_dilate


def _convolution(site: LocalSite) -> list[Instruction]:
    em, dims = site.em, site.op.attrs["dim_labels"]
    zero = em.scalar(0, site.operands[0].shape.dtype)
    lhs, rhs = site.masked(_LHS, (dims.lhs_feature,), zero), site.operands[_RHS]
    rhs = site.masked(_RHS, (dims.rhs_input_feature, *dims.rhs_spatial), em.scalar(0, rhs.shape.dtype))
    window, late = list(_window(site.op).dims), {}
    for n, (x, k, o) in enumerate(zip(dims.lhs_spatial, dims.rhs_spatial, dims.out_spatial, strict=True)):
        atoms = site.operand_atoms(_LHS, x)
        if not atoms:
            continue
        w, line = window[n], SplitLine(x, atoms, f"convolution %{site.op.name} needs")
        reading, whole = _met(site.op, n), w.stride == 1 and not _by_kernel(w, site.shapes[0].dims[o])
        target = reading.target(em.table.extent(atoms))
        got = fetch_dilated(em, line, lhs, reading.n, target, zero, reading.place, late=whole)
        lhs = got.array
        if got.late is not None:
            late[o] = (got.late, got.more)
        size = rhs.shape.dims[k]
        window[n] = replace(w, size=size, pad_low=got.low, pad_high=got.high, lhs_dilate=got.dilate)
    attrs: dict[str, Any] = {"window": Window(tuple(window))}
    for name, dim in (("feature_group_count", dims.lhs_feature), ("batch_group_count", dims.lhs_batch)):
        groups = site.op.attrs.get(name) or 1
        if groups > 1:
            (factor, *_) = site.rule.operands[_LHS][dim]
            attrs[name] = -(-groups // em.table.extent(site.choice.factors[factor]))
    return [_from_late(site, [lhs, rhs], late, attrs)]


def _from_late(
    site: LocalSite, operands: list[Instruction], late: Mapping[int, tuple[Instruction, int]], attrs: Mapping[str, Any]
) -> Instruction:
    """The operation with more results along some dimensions, which begin late: (where, how many more)."""
    if not late:
        return site.emit(operands, **attrs)[0]
    wanted = site.local_shape()
    dims = tuple(n + late[d][1] if d in late else n for d, n in enumerate(wanted.dims))
    made = site.em.add(site.op.opcode, wanted.with_dims(dims), *operands, **{**site.op.attrs, **attrs})
    for d, (start, _) in late.items():
        made = site.em.dynamic_slice(made, d, start, wanted.dims[d])
    return made


def _met(op: Instruction, n: int) -> Outputs | KernelPart:
    """What a convolution reads of its input along windowed dimension ``n``."""
    labels: ConvDims = op.attrs["dim_labels"]
    w, size = _window(op).dims[n], op.operands[_LHS].shape.dims[labels.lhs_spatial[n]]
    count = op.shape.dims[labels.out_spatial[n]]
    return KernelPart(size, count, w) if _by_kernel(w, count) else Outputs.of_window(w, size, count)


def _convolution_sends(op: Instruction, rule: FactorRule) -> Exchanges:
    labels: ConvDims = op.attrs["dim_labels"]
    spatial = {x: n for n, x in enumerate(labels.lhs_spatial)}
    found = []
    for x, n in spatial.items():
        (f,) = rule.operands[_LHS][x]
        found.append((f, x, _met(op, n)))
    return Exchanges(tuple(found))


# -- reduce-window ---------------------------------------------------------------------------------------------


def plain_reducer(body: Computation) -> str | None:
    """The opcode of a reducer that is one operation with a known identity."""
    root = body.root
    known = root.opcode in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
    plain = set(root.operands) == set(body.parameters) and len(root.operands) == 2
    return root.opcode if known and plain else None


def _reduce_window(site: LocalSite) -> list[Instruction]:
    """What lies outside is the reducer's identity; for a body of its own the initial value, as StableHLO has it."""
    n = len(site.shapes)
    window = list(site.op.attrs["window"].dims)
    opcode = plain_reducer(site.op.attrs["to_apply"])
    arrays = list(site.operands[:n])
    for dim, line, k in moved_dims(site):
        w, reading = window[dim], _pool(site.op, dim)
        for i, x in enumerate(arrays):
            fill = site.operands[n + i]
            if opcode is not None:
                fill = site.em.scalar(identity_of(opcode, x.shape.dtype), x.shape.dtype)
            got = fetch_dilated(site.em, line, x, reading.n, reading.target(k), fill, reading.place)
            arrays[i] = got.array
        window[dim] = replace(w, pad_low=got.low, pad_high=got.high, lhs_dilate=got.dilate)
    return site.emit([*arrays, *site.operands[n:]], window=Window(tuple(window)))


def _pool(op: Instruction, dim: int, operand: int = 0) -> Outputs:
    count = next(op.shape.leaves()).dims[dim]
    return Outputs.of_window(op.attrs["window"].dims[dim], op.operands[0].shape.dims[dim], count, operand)


def _window_sends(op: Instruction, rule: FactorRule) -> Exchanges:
    arrays = range(len(list(op.shape.leaves())))
    moved = [(f, d) for f in moving_factors(rule) for t, d in rule.places(f) if t == 0]
    return Exchanges(tuple((f, d, _pool(op, d, i)) for f, d in moved for i in arrays))


# -- select-and-scatter ----------------------------------------------------------------------------------------


def _scatter_rule(op: Instruction) -> FactorRule:
    operand, source = op.operands[0].shape.dims, op.operands[1].shape.dims
    return _scatter_equation(operand, source, op.attrs["window"].dims)


@lru_cache(maxsize=1024)
def _scatter_equation(operand: tuple[int, ...], source: tuple[int, ...], window: tuple[WindowDim, ...]) -> FactorRule:
    """Input, source and result are split together, along windowed dimensions as well."""
    b = RuleBuilder((operand, source, ()), (operand,))
    for d, w in enumerate(window):
        kind = FactorKind.PASS_THROUGH if w == _ELEMENT else FactorKind.PERMUTATION
        b.add(operand[d], [(0, d), (1, d), (3, d)], kind)
    return b.build()


def _scatter_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Windowed dimensions where the two computations are a comparison and an operation with known identities."""
    window: Window = op.attrs["window"]
    known = passed_over(op.attrs["select"], op.shape.dtype) is not None
    known = known and plain_reducer(op.attrs["scatter"]) is not None
    plain = {
        d for d, w in enumerate(window.dims) if (w.lhs_dilate, w.rhs_dilate) == (1, 1) and op.operands[1].shape.dims[d]
    }
    fine = plain if known else {d for d, w in enumerate(window.dims) if w == _ELEMENT}
    return frozenset(f for f in non_empty(op, rule) if all(d in fine for _, d in rule.places(f)))


def passed_over(select: Computation, dtype: DType) -> Any:
    """The value that a window passes over when it compares with GE or GT (LE, LT): the lowest (highest) there is."""
    root = select.root
    if root.opcode != "compare" or tuple(root.operands) != tuple(select.parameters):
        return None
    low = root.attrs["direction"] in ("GE", "GT")
    return (
        identity_of("maximum" if low else "minimum", dtype) if low or root.attrs["direction"] in ("LE", "LT") else None
    )


def _select_and_scatter(site: LocalSite) -> list[Instruction]:
    """Every device computes all windows that touch its part, and keeps its part of what they scatter."""
    em, attrs = site.em, site.op.attrs
    x, source, initial = site.operands
    dtype = x.shape.dtype
    window, cuts = list(attrs["window"].dims), []
    for dim, line, k in moved_dims(site):
        reading, chunk = _touching(site.op, dim), x.shape.dims[dim]
        nothing = em.scalar(identity_of(plain_reducer(attrs["scatter"]) or "add", dtype), dtype)
        source = fetch(em, line, [source], [whole_source(reading.count, k)], reading.source(k), nothing)
        low = em.scalar(passed_over(attrs["select"], dtype), dtype)
        x = fetch(em, line, [x], [whole_source(reading.n, k)], reading.elements(k), low)
        window[dim] = replace(window[dim], pad_low=0, pad_high=0)
        cuts.append((dim, by_position(em, line.atoms, dict(enumerate(reading.before(k)))), chunk))
    made = em.add("select-and-scatter", x.shape, x, source, initial, **{**attrs, "window": Window(tuple(window))})
    for dim, start, size in cuts:
        made = em.dynamic_slice(made, dim, start, size)
    return [made]


def _touching(op: Instruction, dim: int) -> Touching:
    return Touching(op.shape.dims[dim], op.operands[1].shape.dims[dim], op.attrs["window"].dims[dim])


def _scatter_sends(op: Instruction, rule: FactorRule) -> Exchanges:
    moved = [(f, d) for f in moving_factors(rule) for t, d in rule.places(f) if t == 0]
    return Exchanges(tuple((f, d, _touching(op, d)) for f, d in moved))


RULES: Mapping[str, PartitionRow] = {
    "convolution": Local(
        "on shards of every dimension, halos by permutes, partial sums over input features and kernel positions",
        _convolution,
        non_empty,
        linear_in_each,
        _convolution_rule,
        _convolution_sends,
    ),
    "reduce-window": replace(
        CUMULATIVE,
        alternatives=(
            Local(
                "on shards, halos by permutes",
                _reduce_window,
                non_empty,
                same_reduction,
                not_cumulative_rule,
                _window_sends,
            ),
        ),
    ),
    "select-and-scatter": Local(
        "on shards, halos by permutes", _select_and_scatter, _scatter_usable, rule=_scatter_rule, sends=_scatter_sends
    ),
}
