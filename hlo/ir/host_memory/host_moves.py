"""Moves between host and device: operations with one array in one memory and one in the other."""

from __future__ import annotations

from shardc.hlo.ir.host_memory.memory_kinds import is_host
from shardc.hlo.ir.ir import Instruction

__all__ = ["host_move_bytes", "is_host_move", "moves_to_host"]

#: Operations that carry bytes over the host's link where one side is host memory, and the rest stays where it is.
_MOVES = frozenset(("copy", "slice", "dynamic-slice", "dynamic-update-slice", "broadcast"))


def is_host_move(i: Instruction) -> bool:
    """Whether ``i`` carries bytes between host and device. One of its arrays is in one memory, one in the other.

    A ``broadcast`` that fills host memory is such a move, too.
    """
    if i.opcode not in _MOVES or not i.shape.is_array:
        return False
    if i.opcode == "dynamic-update-slice":
        return is_host(i.shape)
    return is_host(i.shape) != is_host(i.operands[0].shape)


def moves_to_host(move: Instruction) -> bool:
    """The direction of a host move."""
    return is_host(move.shape)


def host_move_bytes(move: Instruction) -> int:
    """The bytes that a host move carries: those of the part that is read or written."""
    part = move.operands[1] if move.opcode == "dynamic-update-slice" else move
    return part.shape.nbytes
