"""Collectives through the host's memory: the places of operands and results there, for the transport that does them.

Every device has an arena on the host; a transport does the same collectives on those as it does on a CPU. Places of
collectives that may be under way at the same time are apart, all others lie in the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.memory import PASSED_BY

__all__ = ["Staging", "stage_calls"]

_ALIGNMENT = 64
#: Behind the step's words at the beginning of an arena.
_HEADER = -(-(PASSED_BY + 8) // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class Staging:
    """``calls`` on arenas of ``nbytes`` bytes; ``originals`` say where the same buffers lie on the device."""

    calls: tuple[CollectiveCall, ...]
    originals: tuple[CollectiveCall, ...]
    nbytes: int

    def incoming(self, index: int) -> list[tuple[BufferRef, BufferRef]]:
        """(on the device, on the host) of what collective ``index`` reads."""
        return [(a.operand, b.operand) for a, b in self._pairs(index) if a.count]

    def outgoing(self, index: int) -> list[tuple[BufferRef, BufferRef]]:
        """The same of what it writes."""
        return [(a.result, b.result) for a, b in self._pairs(index) if a.count]

    def _pairs(self, index: int) -> list[tuple[CollectiveOperand, CollectiveOperand]]:
        n = next(n for n, call in enumerate(self.calls) if call.index == index)
        return list(zip(self.originals[n].operands, self.calls[n].operands, strict=True))


def stage_calls(calls: Sequence[CollectiveCall]) -> Staging:
    """``calls`` of a program on the device, moved to arenas on the host."""
    lasting = _HEADER
    moved: dict[int, CollectiveCall] = {}
    for call in calls:
        if call.asynchronous:
            moved[call.index], lasting = _place_call(call, lasting)
    end = lasting
    for call in calls:
        if not call.asynchronous:
            moved[call.index], behind = _place_call(call, lasting)
            end = max(end, behind)
    return Staging(tuple(moved[c.index] for c in calls), tuple(calls), end)


def _place_call(call: CollectiveCall, begin: int) -> tuple[CollectiveCall, int]:
    """The call in an arena from ``begin`` on, and where it ends."""
    operands = []
    for o in call.operands:
        operand = BufferRef("arena", 0, begin, o.operand.nbytes)
        if o.result != o.operand:
            begin = _behind(operand)
        result = BufferRef("arena", 0, begin, o.result.nbytes)
        begin = _behind(result)
        operands.append(replace(o, operand=operand, result=result, wanted=-1))
    return replace(call, operands=tuple(operands)), begin


def _behind(ref: BufferRef) -> int:
    return -(-(ref.offset + ref.nbytes) // _ALIGNMENT) * _ALIGNMENT
