"""Rows of the control family: mostly data flow, where values pass unchanged from one place to another."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.factors import FactorRule
from shardc.sharding.rules.elementwise import pointwise
from shardc.sharding.rules.linalg import whole_minor_dimensions
from shardc.sharding.rules.reduction import along_one_dimension
from shardc.sharding.rules.signature import DataFlow, Row, Rule, Signature, Unsupported, replicate_rule

__all__ = ["RULES"]

_POINTWISE_CALLS = frozenset(
    ("Sharding", "LayoutConstraint", "annotate_device_placement", "MoveToHost", "MoveToDevice", "PinToHost")
)
_TOP_K_CALLS = frozenset(("mhlo.topk", "TopK", "ApproxTopK", "PartialReduce"))


def _custom_call(sig: Signature) -> FactorRule:
    target = sig.attrs[0]
    if target in _POINTWISE_CALLS and sig.operands[:1] == sig.results[:1]:
        return pointwise(sig)
    if target in _TOP_K_CALLS and sig.operands and sig.operands[0].rank:
        return along_one_dimension(sig, sig.operands[0].rank - 1, blocked=True)
    if target.startswith("mhlo.") and len({(s.dims, len(sig.results)) for s in (*sig.operands, *sig.results)}) == 1:
        return pointwise(sig)
    if target == "Cholesky":
        return whole_minor_dimensions(sig, 2)
    return replicate_rule(sig, f"nothing is known of the dimensions of custom call {target!r}")


def _infeed(direction: str) -> Row:
    return Unsupported(f"{direction} is per device: take the value as a parameter or result instead")


RULES: Mapping[str, Row] = {
    "parameter": DataFlow("the value is the caller's operand"),
    "tuple": DataFlow("each leaf is an operand's"),
    "get-tuple-element": DataFlow("the value is a leaf of the operand"),
    "call": DataFlow("operands are the parameters, the result is the callee's root"),
    "while": DataFlow("operand, parameters, body root and result are one value per leaf"),
    "conditional": DataFlow("operands are the branches' parameters, the result is every branch's root"),
    "fusion": DataFlow("operands are the parameters, the result is the callee's root"),
    "custom-call": Rule(_custom_call, ("custom_call_target",)),
    "optimization-barrier": DataFlow("the result is the operand, leaf by leaf"),
    "after-all": DataFlow("tokens have no layout"),
    "add-dependency": DataFlow("the result is the first operand"),
    "domain": DataFlow("the result is the operand"),
    "copy-start": Unsupported("asynchronous copies are inserted after partitioning"),
    "copy-done": Unsupported("asynchronous copies are inserted after partitioning"),
    "async-start": Unsupported("asynchronous pairs are made after partitioning"),
    "async-update": Unsupported("asynchronous pairs are made after partitioning"),
    "async-done": Unsupported("asynchronous pairs are made after partitioning"),
    "infeed": _infeed("infeed"),
    "outfeed": _infeed("outfeed"),
}
