"""Factor rules of convolutions and windowed reductions."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.opset import Window, WindowDim
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule, RuleBuilder
from shardc.sharding.rules.signature import FactorRow, Row, Signature

__all__ = ["RULES"]

_LHS, _RHS, _OUT = 0, 1, 2
_ELEMENT = WindowDim(1)


def _convolution(sig: Signature) -> FactorRule:
    dims, feature_groups, batch_groups, window = sig.attrs
    feature_groups, batch_groups = feature_groups or 1, batch_groups or 1
    lhs, rhs, out = (*sig.operands, sig.results[0])
    b = sig.builder()
    out_features, out_groups = (_OUT, dims.out_feature), max(feature_groups, batch_groups)
    per_group = rhs.dims[dims.rhs_output_feature] // out_groups

    if batch_groups > 1:
        b.add(batch_groups, [(_LHS, dims.lhs_batch), (_RHS, dims.rhs_output_feature), out_features])
    _at_least_one(b, out.dims[dims.out_batch], [(_LHS, dims.lhs_batch), (_OUT, dims.out_batch)], batch_groups > 1)
    for n, (left, right, result) in enumerate(zip(dims.lhs_spatial, dims.rhs_spatial, dims.out_spatial, strict=True)):
        covers = out.dims[result] == 1 and lhs.dims[left] == rhs.dims[right] and _is_plain(window, n)
        _spatial(b, (left, lhs.dims[left]), (right, rhs.dims[right]), (result, out.dims[result]), covers=covers)
    if feature_groups > 1:
        b.add(feature_groups, [(_LHS, dims.lhs_feature), (_RHS, dims.rhs_output_feature), out_features])
    features = [(_LHS, dims.lhs_feature), (_RHS, dims.rhs_input_feature)]
    reduced = rhs.dims[dims.rhs_input_feature]
    b.add(reduced, features if reduced > 1 or feature_groups == 1 else features[1:], FactorKind.REDUCTION)
    if per_group > 1 or out_groups == 1:
        b.add(per_group, [(_RHS, dims.rhs_output_feature), out_features])
    return b.build(reduction="sum")


def _at_least_one(b: RuleBuilder, size: int, places: list[tuple[int, int]], has_factor: bool) -> None:
    """The batch factor; the operand's dimension already has one when batch groups take all of it."""
    b.add(size, places[1:] if has_factor and size == 1 else places)


def _is_plain(window: Window | None, dim: int) -> bool:
    """Whether there is nothing around the input, nothing between elements, and the kernel is in order."""
    w = window.dims[dim] if window is not None else _ELEMENT
    return (w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate, w.reversal) == (0, 0, 1, 1, False)


def _spatial(b: RuleBuilder, lhs: tuple[int, int], rhs: tuple[int, int], out: tuple[int, int], *, covers: bool) -> None:
    """Positions of the input are positions of the output (forward) or of the kernel (weight gradient).

    The longer of output and kernel shares the major factor with the input; with strides, what remains of the input
    is shared with the other one. A kernel that covers the input once is a contraction; in any other place it needs
    neighbours' elements as well.
    """
    major, minor = (_OUT, *out), (_RHS, *rhs)
    if rhs[1] > out[1]:
        major, minor = minor, major
    kinds = {_OUT: FactorKind.PERMUTATION, _RHS: FactorKind.REDUCTION if covers else FactorKind.PERMUTATION}
    shared = min(lhs[1], major[2])
    if not shared:
        return
    b.add(shared, [(_LHS, lhs[0]), (major[0], major[1])], kinds[major[0]])
    rest = min(lhs[1] // shared, minor[2])
    if rest > 1:
        b.add(rest, [(_LHS, lhs[0]), (minor[0], minor[1])], kinds[minor[0]])
    elif minor[2] > 1:
        b.add(minor[2], [(minor[0], minor[1])], FactorKind.PERMUTATION)


def _reduce_window(sig: Signature) -> FactorRule:
    """Dimensions whose window is the element itself pass through; the others need neighbours."""
    window = sig.attrs[0]
    n = len(sig.results)
    b = sig.builder()
    for d, size in enumerate(sig.results[0].dims):
        places = [(t, d) for t in (*range(n), *range(2 * n, 3 * n))]
        b.add(size, places, FactorKind.PASS_THROUGH if window.dims[d] == _ELEMENT else FactorKind.PERMUTATION)
    return b.build()


def _select_and_scatter(sig: Signature) -> FactorRule:
    operand, source = sig.operands[0], sig.operands[1]
    window = sig.attrs[0]
    b = sig.builder()
    for d, size in enumerate(operand.dims):
        if window.dims[d] == _ELEMENT:
            b.add(size, [(0, d), (1, d), (3, d)])
        else:
            b.add(source.dims[d], [(1, d)], FactorKind.NEED_REPLICATION)
            b.add(size, [(0, d), (3, d)], FactorKind.PERMUTATION)
    return b.build()


RULES: Mapping[str, Row] = {
    "convolution": FactorRow(_convolution, ("dim_labels", "feature_group_count", "batch_group_count", "window")),
    "reduce-window": FactorRow(_reduce_window, ("window",)),
    "select-and-scatter": FactorRow(_select_and_scatter, ("window",)),
}
