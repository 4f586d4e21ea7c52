"""Convolutions and windowed reductions: batch and feature dimensions on shards, windowed dimensions whole."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir import Instruction
from shardc.hlo.opset import ConvDims
from shardc.partitioner.rules.reduction import same_reduction
from shardc.partitioner.rules.rule import Local, Row, Site
from shardc.sharding.factors import FactorRule

__all__ = ["RULES"]


def _convolution_usable(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Without groups every factor that no window runs over; with groups only the batch of a plain batch dimension."""
    dims: ConvDims = op.attrs["dim_labels"]
    feature_groups = op.attrs.get("feature_group_count") or 1
    batch_groups = op.attrs.get("batch_group_count") or 1
    free = {(0, dims.lhs_batch), (2, dims.out_batch)} if batch_groups == 1 else set()
    if feature_groups == batch_groups == 1:
        free |= {(0, dims.lhs_feature), (1, dims.rhs_input_feature)}
        free |= {(1, dims.rhs_output_feature), (2, dims.out_feature)}
    return frozenset(f for f in range(len(rule.factors)) if set(rule.places(f)) <= free)


def _convolution(site: Site) -> list[Instruction]:
    dims: ConvDims = site.op.attrs["dim_labels"]
    operands = []
    for i, d in enumerate((dims.lhs_feature, dims.rhs_input_feature)):
        operands.append(site.masked(i, (d,), site.em.scalar(0, site.operands[i].shape.dtype)))
    return site.emit(operands)


def _either(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,), (1,)) if reduction == "sum" else ()


RULES: Mapping[str, Row] = {
    "convolution": Local(
        "on shards of batch and features, partial sums over input features", _convolution, _convolution_usable, _either
    ),
    "reduce-window": Local("on shards, windowed dimensions whole", linear=same_reduction),
    "select-and-scatter": Local("on shards, windowed dimensions whole"),
}
