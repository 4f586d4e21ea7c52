"""What an instruction does, in a few words for people: a fusion is the operations inside it."""

from __future__ import annotations

from collections import Counter

from shardc.hlo.ir.ir import Instruction

__all__ = ["describe_instruction"]

#: Operations of a fused computation that go without saying.
_SILENT = frozenset({"parameter", "constant", "broadcast", "tuple", "get-tuple-element", "reshape", "bitcast"})


def describe_instruction(instruction: Instruction) -> str:
    """Operations in the order in which they first come, with how often; then the result's shape.

    Example: ``subtract, exponential, reduce, 2 multiply -> f32[64,128]``; products name their operands' shapes.
    """
    result = str(instruction.shape.plain)
    if instruction.opcode == "fusion":
        inside = Counter(map(_describe_operation, (i for i in instruction.attrs["calls"] if i.opcode not in _SILENT)))
        operations = [o if n == 1 else f"{n} {o}" for o, n in inside.items()]
        return f"{', '.join(operations) or 'copy'} -> {result}"
    return f"{_describe_operation(instruction)} -> {result}"


def _describe_operation(i: Instruction) -> str:
    if i.opcode in ("dot", "convolution"):
        return f"{i.opcode} {' x '.join(str(o.shape.plain) for o in i.operands)}"
    return str(i.attrs["custom_call_target"]) if i.opcode == "custom-call" else i.opcode
