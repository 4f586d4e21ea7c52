"""How far moves between host and device may run ahead of what computes, or behind it.

Values are in host memory because the device has no place for them. A schedule that fetched them all at once, or made
new ones faster than the link carries them away, would need that place again. So a fetch begins only when the value
fetched before it is being read, and what makes a value for the host waits until the one two before it is there: two
buffers in each direction, as in double buffering.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair
from shardc.hlo.ir.host_memory.host_moves import is_host_move, moves_to_host
from shardc.hlo.ir.ir import Instruction

__all__ = ["pace_moves"]

#: Values on their way to the host at a time.
_LEAVING = 2


def pace_moves(order: Sequence[Instruction]) -> dict[Instruction, list[Instruction]]:
    """What instructions of ``order`` wait for besides their operands: always something that comes before them there.

    Example: of the fetches ``a``, ``b`` with the readers ``f(a)``, ``g(b)`` in the order ``a f b g``, b waits for f.
    """
    moves = [i for i in order if is_start(i) and is_host_move(join_pair(i))]
    if not moves:
        return {}
    number = {i: n for n, i in enumerate(order)}
    done = {i.operands[0]: i for i in order if is_done(i)}
    reader: dict[Instruction, Instruction] = {}
    for i in order:
        for o in i.operands:
            reader.setdefault(o, i)
    leaving = [i for i in moves if moves_to_host(join_pair(i))]
    coming = [i for i in moves if not moves_to_host(join_pair(i))]
    waits: dict[Instruction, list[Instruction]] = {}

    def wait(i: Instruction | None, other: Instruction | None) -> None:
        if i is not None and other is not None and number[other] < number[i]:
            waits.setdefault(i, []).append(other)

    for before, i in pairwise(coming):
        wait(i, reader.get(done[before]))
    for before, i in zip(leaving, leaving[_LEAVING:], strict=False):
        wait(_maker(i), done[before])
    return waits


def _maker(start: Instruction) -> Instruction | None:
    """What makes the value that a move to the host carries: the part, where it is written into an array there."""
    move = join_pair(start)
    value = move.operands[1] if move.opcode == "dynamic-update-slice" else move.operands[0]
    while value.opcode in ("reshape", "bitcast", "get-tuple-element"):
        value = value.operands[0]
    return None if value.opcode in ("parameter", "constant") else value
