"""What HLO text itself demands of single operations, beyond operand counts and required attributes.

Only what XLA's parser refuses; shapes and types are the verifier's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.ir import Instruction
from shardc.hlo.opset import OPS, Window
from shardc.hlo.text.scanner import Scanner
from shardc.hlo.text.shapes import shape_of_text
from shardc.hlo.types import Shape, token_shape, tuple_shape

__all__ = ["RULES", "SPELLINGS", "complete"]

Operands = tuple[Instruction, ...]
#: A rule returns what is wrong, or None.
Rule = Callable[[Operands, Mapping[str, Any], Shape | None], str | None]


#: Attributes of the text that become others in the program; `complete` does it.
SPELLINGS: Mapping[str, Mapping[str, str]] = MappingProxyType({"compare": MappingProxyType({"order": "enum"})})


def complete(opcode: str, operands: Operands, attrs: dict[str, Any], shape: Shape | None) -> Shape | None:
    """Fill in what may be left out; returns the shape, which for some opcodes follows from the operands alone."""
    if opcode == "broadcast" and "dimensions" not in attrs and not operands[0].shape.dims:
        attrs["dimensions"] = ()
    elif opcode in ("reduce-window", "select-and-scatter") and "window" not in attrs:
        attrs["window"] = Window(())
    elif opcode == "compare" and "order" in attrs:
        # Newer texts say order=TOTAL for what older ones call type=TOTALORDER; integers have one order anyway.
        if attrs.pop("order") == "TOTAL" and operands[0].shape.dtype.is_float:
            attrs["type"] = "TOTALORDER"
    elif opcode == "recv-done" and operands[0].shape.is_tuple and operands[0].shape.elements:
        return tuple_shape(operands[0].shape.elements[0], token_shape())
    return shape


def _one_dimension(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del operands, shape
    count = len(attrs.get("dimensions", (0,)))
    return None if count == 1 else f"dimensions must name one dimension, found {count}"


def _dynamic_reshape(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del attrs, shape
    return None if operands else "it needs at least one operand"


def _infeed(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del operands, attrs
    return "its shape must be a tuple with elements" if shape is not None and not shape.elements else None


def _conditional(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del shape
    if not operands:
        return "it needs a predicate or a branch number"
    chooser = operands[0].shape
    if chooser.dims or chooser.dtype.name not in ("pred", "s32"):
        return f"its first operand must be a scalar pred or s32, found {chooser}"
    indexed = "branch_computations" in attrs
    if indexed == ("true_computation" in attrs or "false_computation" in attrs):
        return "it needs branch_computations, or true_computation and false_computation"
    branches = len(attrs["branch_computations"]) if indexed else 2
    if len(operands) != branches + 1:
        return f"{branches} branches need as many operands after the first, found {len(operands) - 1}"
    return None


def _custom_call(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del shape
    if attrs.get("api_version") == "API_VERSION_UNSPECIFIED":
        return "its api_version is unspecified"
    if "to_apply" in attrs and "called_computations" in attrs:
        return "it has either to_apply or called_computations"
    constraints = attrs.get("operand_layout_constraints")
    if constraints is None:
        return None
    declared = shape_of_text("(" + constraints[1:-1] + ")").elements
    if len(declared) != len(operands):
        return f"{len(declared)} operand layout constraints for {len(operands)} operands"
    for i, (want, operand) in enumerate(zip(declared, operands, strict=True)):
        if want.plain != operand.shape.plain:
            return f"operand layout constraint {i} is {want}, the operand has shape {operand.shape}"
    return None


_ACCURACY = re.compile(r"\s*(mode\s*=\s*(?:default|highest)|tolerance\s*=(?=\s*\{))\s*")
_TOLERANCE = re.compile(r"\{\s*(?:(?:rtol|atol|ulps)\s*=\s*[-+\d.eE]+\s*,?\s*)*\}\Z")


def _accuracy(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del operands, shape
    text = attrs.get("result_accuracy")
    if text is None:
        return None
    scanner = Scanner(text[1:-1])
    found = scanner.match(_ACCURACY)
    good = found is not None and (
        scanner.at_end()
        or (found.group(1).startswith("tolerance") and _TOLERANCE.match(scanner.bracketed()) is not None)
    )
    return None if good else f"malformed result_accuracy={text}"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "all-gather": _one_dimension,
        "all-gather-start": _one_dimension,
        "reduce-scatter": _one_dimension,
        "concatenate": _one_dimension,
        "sort": _one_dimension,
        "get-dimension-size": _one_dimension,
        "set-dimension-size": _one_dimension,
        "dynamic-reshape": _dynamic_reshape,
        "infeed": _infeed,
        "conditional": _conditional,
        "custom-call": _custom_call,
    }
    | {row.opcode: _accuracy for row in OPS.values() if "result_accuracy" in row.attributes}
)
