"""What an instruction does, in a few words for people: a fusion is the operations inside it."""

from __future__ import annotations

from collections import Counter

from shardc.hlo.ir import Instruction

__all__ = ["holds"]

#: Operations of a fused computation that go without saying.
_SILENT = frozenset({"parameter", "constant", "broadcast", "tuple", "get-tuple-element", "reshape", "bitcast"})


def holds(instruction: Instruction) -> str:
    """Operations in the order in which they first come, with how often; then the result's shape.

    Example: ``subtract, exponential, reduce, 2 multiply -> f32[64,128]``; a product names its operands' shapes.
    """
    result = str(instruction.shape.plain)
    if instruction.opcode == "fusion":
        inside = Counter(i.opcode for i in instruction.attrs["calls"] if i.opcode not in _SILENT)
        words = [o if n == 1 else f"{n} {o}" for o, n in inside.items()]
        return f"{', '.join(words) or 'copy'} -> {result}"
    if instruction.opcode in ("dot", "convolution"):
        sides = " x ".join(str(o.shape.plain) for o in instruction.operands)
        return f"{instruction.opcode} {sides} -> {result}"
    if instruction.opcode == "custom-call":
        return f"{instruction.attrs['custom_call_target']} -> {result}"
    return f"{instruction.opcode} -> {result}"
