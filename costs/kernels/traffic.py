"""What one instruction moves: bytes that a kernel of it reads and writes, from shapes alone.

A kernel reads each operand once, but only the part that slices and gathers take of it; an update in place touches
only what it replaces. It is what the roofline is drawn for, not what a cache sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.ir.ir import Computation, Instruction, users_of

__all__ = ["Traffic", "instruction_traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written, and arithmetic operations, of one execution."""

    read: int
    written: int
    flops: int = 0


def instruction_traffic(i: Instruction, new: Instruction | None = None) -> Traffic:
    """The bytes of ``i``; where it writes ``new`` over a part of its operand 0 in place (of a fusion: of its root's),
    only those.

    Example: ``slice`` of 10 of ``f32[1000]`` reads and writes 40 bytes; adding two ``f32[1000]`` reads 8000.
    """
    read = [_nbytes(o) for o in i.operands]
    if i.opcode == "fusion":
        return _fusion(i.attrs["calls"], read, new)
    written, samples = _nbytes(i), OP_COSTS[i.opcode].samples
    if new is None and not samples:
        return Traffic(sum(_nbytes(o) for o in dict.fromkeys(i.operands)), written)
    if samples:
        read[0] = min(read[0], written)
    if new is not None:
        read[0], written = (_nbytes(new) if i.opcode == "scatter" else 0), _nbytes(new)
    return Traffic(sum(read), written)


def _fusion(computation: Computation, sizes: Sequence[int], new: Instruction | None) -> Traffic:
    users = users_of(computation)
    written = _nbytes(computation.root if new is None else new)
    updated = None if new is None else computation.root.operands[0]
    pairs = zip(computation.parameters, sizes, strict=True)
    return Traffic(sum(_part(p, users, size) for p, size in pairs if p is not updated), written)


def _part(p: Instruction, users: Mapping[Instruction, Sequence[Instruction]], whole: int) -> int:
    """Bytes of ``p`` that its users take: of a part that parts are taken of, only those."""
    taken = 0
    for value, user in _readers(p, users):
        if user is None or not OP_COSTS[user.opcode].samples:
            return whole
        if user.operands[0] is not value or value in user.operands[1:]:
            return whole
        taken += _part(user, users, _nbytes(user))
    return min(whole, taken)


def _readers(
    value: Instruction, users: Mapping[Instruction, Sequence[Instruction]]
) -> Iterator[tuple[Instruction, Instruction | None]]:
    """What reads ``value``, also under other dimensions or rearranged; None for whoever gets the result."""
    found = list(dict.fromkeys(users[value]))
    if not found:
        yield value, None
    for user in found:
        if OP_COSTS[user.opcode].renames or user.opcode == "transpose":
            yield from _readers(user, users)
        else:
            yield value, user


def _nbytes(i: Instruction) -> int:
    return sum(s.nbytes for s in i.shape.leaves() if s.is_array)
