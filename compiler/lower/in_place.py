"""Which kernels and collectives may write their result over an operand."""

from __future__ import annotations

from shardc.compiler.lower.fusion_rules import is_elementwise
from shardc.hlo.ir import Instruction

__all__ = ["in_place_pairs"]

#: Ops that change a part of operand 0 and keep the rest: their kernels skip the copy when both are the same memory.
_UPDATES = frozenset({"dynamic-update-slice", "scatter"})


def in_place_pairs(i: Instruction) -> tuple[tuple[int, int], ...]:
    """(result leaf, operand leaf) pairs that may be the same memory.

    Safe where element k of the result reads nothing of the operand but element k, of the same width.
    """
    if i.opcode == "all-reduce":
        return tuple((n, n) for n in range(len(i.operands)))
    if i.opcode in _UPDATES:
        return ((0, 0),) if i.shape.is_array else ()
    if not i.shape.is_array:
        return ()
    if i.opcode == "fusion":
        readable = _elementwise_parameters(i)
    elif is_elementwise(i):
        readable = [n for n, o in enumerate(i.operands) if o.shape.dims == i.shape.dims]
    else:
        return ()
    width = i.shape.dtype.nbytes
    return tuple((0, n) for n in readable if i.operands[n].shape.is_array and i.operands[n].shape.dtype.nbytes == width)


def _elementwise_parameters(fusion: Instruction) -> list[int]:
    """Parameters of a fused computation that are read only at the element that is being written."""
    computation = fusion.attrs["calls"]
    at_element = {computation.root}
    elsewhere: set[Instruction] = set()
    for i in reversed(computation.instructions):
        if i.opcode == "parameter":
            continue
        same = i in at_element and i not in elsewhere and is_elementwise(i)
        for o in i.operands:
            (at_element if same and o.shape.dims == fusion.shape.dims else elsewhere).add(o)
    return [p.attrs["index"] for p in computation.parameters if p in at_element and p not in elsewhere]
