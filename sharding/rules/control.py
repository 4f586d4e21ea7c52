"""Rows of the control family: mostly data flow, where values pass unchanged from one place to another."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.sharding.rules.custom_call import CUSTOM_CALL
from shardc.sharding.rules.signature import DataFlow, Replicate, Row, Unsupported

__all__ = ["RULES"]


RULES: Mapping[str, Row] = {
    "parameter": DataFlow("the value is the caller's operand"),
    "tuple": DataFlow("each leaf is an operand's"),
    "get-tuple-element": DataFlow("the value is a leaf of the operand"),
    "call": DataFlow("operands are the parameters, the result is the callee's root"),
    "while": DataFlow("operand, parameters, body root and result are one value per leaf"),
    "conditional": DataFlow("operands are the branches' parameters, the result is every branch's root"),
    "fusion": DataFlow("operands are the parameters, the result is the callee's root"),
    "custom-call": CUSTOM_CALL,
    "optimization-barrier": DataFlow("the result is the operand, leaf by leaf"),
    "after-all": DataFlow("tokens have no layout"),
    "add-dependency": DataFlow("the result is the first operand"),
    "domain": DataFlow("the result is the operand"),
    "copy-start": Unsupported("asynchronous copies are inserted after partitioning"),
    "copy-done": Unsupported("asynchronous copies are inserted after partitioning"),
    "async-start": Unsupported("asynchronous pairs are made after partitioning"),
    "async-update": Unsupported("asynchronous pairs are made after partitioning"),
    "async-done": Unsupported("asynchronous pairs are made after partitioning"),
    "infeed": Replicate("every device is fed its part"),
    "outfeed": Replicate("every device gives its part"),
}
