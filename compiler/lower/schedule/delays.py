"""Finds kernels whose results go to a collective, and the long operations that each of them waits for.

A product that is fused with a reader of a transfer's result waits for that transfer. A transfer begins when its operand
is ready. If a kernel computes the operand together with a value that needs a later product, loop or collective, then
the kernel and the transfer begin later. In both cases less computation overlaps with the transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shardc.compiler.lower.fuse.fusion_rules import is_alias
from shardc.hlo.ir.asynchronous import is_start
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["Delays"]

_HEAVY = frozenset({"dot", "convolution", "while", "conditional", "custom-call", "sort", "fft"})


class Delays:
    """The long operations that each instruction of a computation waits for, as bit masks."""

    def __init__(self, computation: Computation, users: Mapping[Instruction, Sequence[Instruction]]) -> None:
        self._waits: dict[Instruction, int] = {}
        self._urgent: set[Instruction] = set()
        self._transfers = 0
        bits = 0
        for i in computation:
            mask = 0
            for o in i.operands:
                mask |= self._waits[o]
            if _is_heavy(i):
                mask |= 1 << bits
                self._transfers |= _travels(i) << bits
                bits += 1
            self._waits[i] = mask
        for i in reversed(computation.instructions):
            if any(_travels(u) or (is_alias(u) and u in self._urgent) for u in users[i]):
                self._urgent.add(i)

    def between(self, a: Iterable[Instruction], b: Iterable[Instruction]) -> bool:
        """Whether a result that one of two kernels gives to a collective would wait for more operations if they were
        merged."""
        (first, urgent_a), (second, urgent_b) = self._of(a), self._of(b)
        return (urgent_a and bool(second & ~first)) or (urgent_b and bool(first & ~second))

    def awaits_more(self, i: Instruction, other: Instruction) -> bool:
        """Whether ``i`` waits for a collective that ``other`` does not wait for."""
        return bool(self._waits[i] & ~self._waits[other] & self._transfers)

    def _of(self, members: Iterable[Instruction]) -> tuple[int, bool]:
        mask, urgent = 0, False
        for m in members:
            mask |= self._waits[m]
            urgent |= m in self._urgent
        return mask, urgent


def _travels(i: Instruction) -> bool:
    return i.opcode in COLLECTIVES or is_start(i)


def _is_heavy(i: Instruction) -> bool:
    if i.opcode == "fusion":
        return any(m.opcode in _HEAVY for m in i.attrs["calls"])
    return i.opcode in _HEAVY or _travels(i)
