"""What HLO text itself demands of single operations, beyond operand counts and required attributes.

Only what XLA's parser refuses; shapes and types are the verifier's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import Window
from shardc.hlo.ir.types import UNBOUNDED, Shape, token_shape, tuple_shape
from shardc.hlo.units import count_text

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


def _reshape(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del attrs
    if shape is None or shape.size == operands[0].shape.size or UNBOUNDED in (*shape.dims, *operands[0].shape.dims):
        return None
    return f"{operands[0].shape} cannot become {shape}, which has another number of elements"


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
    indexed = chooser.dtype.name == "s32"
    wanted = {"branch_computations"} if indexed else {"true_computation", "false_computation"}
    if wanted != {k for k in attrs if k.endswith(("_computation", "_computations"))}:
        return f"with a first operand of type {chooser.dtype} it needs {' and '.join(sorted(wanted, reverse=True))}"
    branches = len(attrs["branch_computations"]) if indexed else 2
    if len(operands) != branches + 1:
        return f"{branches} branches need as many operands after the first, found {len(operands) - 1}"
    return None


def _custom_call(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del shape
    if attrs.get("api_version") == "API_VERSION_UNSPECIFIED":
        return "its api_version is unspecified"
    if "to_apply" in attrs and "called_computations" in attrs:
        return "it cannot have both to_apply and called_computations"
    constraints = attrs.get("operand_layout_constraints")
    if constraints is None:
        return None
    if len(constraints) != len(operands):
        return f"{len(constraints)} operand layout constraints for {len(operands)} operands"
    for i, (want, operand) in enumerate(zip(constraints, operands, strict=True)):
        if want.plain != operand.shape.plain:
            return f"operand layout constraint {i} is {want}, the operand has shape {operand.shape}"
    return None


def _tuple(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del attrs
    if shape is None or len(shape.elements) == len(operands):
        return None
    return f"its shape {shape} has {count_text(len(shape.elements), 'element')}, it is given {len(operands)}"


def _pairs(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del attrs, shape
    return f"it takes as many inputs as initial values, found {len(operands)} operands" if len(operands) % 2 else None


def _scatter(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del attrs, shape
    odd = len(operands) % 2
    return None if odd else f"it takes operands, indices and as many updates, found {len(operands)} operands"


def _scan(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    wanted = len(attrs["to_apply"].parameters)
    if len(operands) != wanted:
        return f"to_apply has {wanted} parameters, found {len(operands)} operands"
    if len(operands) < attrs.get("num_carries", 0):
        return f"{attrs['num_carries']} carries need as many operands, found {len(operands)}"
    return _one_dimension(operands, attrs, shape)


def _starts(first: int) -> Rule:
    """Operands from ``first`` on are the start indices: one vector, or a scalar per dimension."""

    def rule(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
        del attrs, shape
        if len(operands) < max(first, 1):
            return f"it takes at least {first} operands, found {len(operands)}"
        starts = operands[first:]
        if len(starts) == 1 and starts[0].shape.rank == 1:
            return None
        rank = operands[0].shape.rank
        return None if len(starts) == rank else f"it needs {rank} start indices, found {len(starts)}"

    return rule


def _channel(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    """A done belongs to the channel of its start."""
    del shape
    start = operands[0]
    if start.opcode not in ("send", "recv") or start.attrs.get("channel_id") == attrs.get("channel_id"):
        return None
    return f"its channel_id is {attrs.get('channel_id')}, that of %{start.name} is {start.attrs.get('channel_id')}"


def _permute(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    del shape
    if "slice_sizes" in attrs and len(operands) != 4:
        return f"with slice_sizes it takes 4 operands, found {len(operands)}"
    return None


def _device_ids(operands: Operands, attrs: Mapping[str, Any], shape: Shape | None) -> str | None:
    if attrs.get("use_global_device_ids") and "channel_id" not in attrs and "mode" not in attrs:
        return "use_global_device_ids=true needs a channel_id"
    return _one_dimension(operands, attrs, shape)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "reshape": _reshape,
        "all-to-all": _one_dimension,
        "all-gather": _one_dimension,
        "all-gather-start": _one_dimension,
        "reduce-scatter": _device_ids,
        "all-reduce": _device_ids,
        "all-reduce-start": _device_ids,
        "collective-permute": _permute,
        "collective-permute-start": _permute,
        "send-done": _channel,
        "recv-done": _channel,
        "tuple": _tuple,
        "reduce": _pairs,
        "reduce-window": _pairs,
        "scatter": _scatter,
        "scan": _scan,
        "dynamic-slice": _starts(1),
        "dynamic-update-slice": _starts(2),
        "concatenate": _one_dimension,
        "sort": _one_dimension,
        "get-dimension-size": _one_dimension,
        "set-dimension-size": _one_dimension,
        "dynamic-reshape": _dynamic_reshape,
        "infeed": _infeed,
        "conditional": _conditional,
        "custom-call": _custom_call,
    }
)
