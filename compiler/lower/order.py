"""Order: a schedule that keeps few bytes alive at a time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.compiler.lower.fusion_rules import is_alias
from shardc.compiler.lower.make import map_computations, step_computations
from shardc.hlo.ir import Computation, Instruction, Module, users_of

__all__ = ["Order", "peak_bytes_of"]

#: Instructions that take no memory of their own.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "after-all", "while"})


@dataclass(frozen=True, slots=True)
class Order:
    """Reorder each computation where a greedy list order needs less memory than the present one."""

    name: str = "order"
    why: str = "values are made late and freed early"

    def run(self, module: Module) -> Module:
        return map_computations(module, _ordered, only=step_computations(module))


def _ordered(computation: Computation) -> Computation:
    if len(computation.instructions) < 3:
        return computation
    candidate = _greedy(computation)
    if peak_bytes_of(candidate, computation.root) >= peak_bytes_of(computation.instructions, computation.root):
        return computation
    return Computation(computation.name, candidate, computation.root)


def _memory(i: Instruction) -> int:
    return 0 if i.opcode in _FREE or is_alias(i) else i.shape.nbytes


def _holders(instructions: Sequence[Instruction]) -> dict[Instruction, tuple[Instruction, ...]]:
    """The instructions whose memory each instruction's value lies in (itself, or through tuples and aliases)."""
    holders: dict[Instruction, tuple[Instruction, ...]] = {}
    for i in instructions:
        if i.opcode in ("tuple", "get-tuple-element", "while") or is_alias(i):
            holders[i] = tuple(dict.fromkeys(h for o in i.operands for h in holders[o]))
        else:
            holders[i] = (i,)
    return holders


def peak_bytes_of(instructions: Sequence[Instruction], root: Instruction) -> int:
    """Most bytes alive at a time when ``instructions`` run in this order, arguments and constants not counted."""
    holders = _holders(instructions)
    last: dict[Instruction, int] = {}
    for n, i in enumerate(instructions):
        for o in (i, *i.operands):
            for h in holders[o]:
                last[h] = n
    for h in holders[root]:
        last[h] = len(instructions)
    dying: dict[int, int] = {}
    for h, n in last.items():
        dying[n] = dying.get(n, 0) + _memory(h)
    alive = peak = 0
    for n, i in enumerate(instructions):
        alive += _memory(i)
        peak = max(peak, alive)
        alive -= dying.get(n, 0)
    return peak


def _greedy(computation: Computation) -> list[Instruction]:
    """List scheduling: of all ready instructions, the one that adds the fewest bytes; then the earlier one."""
    instructions = computation.instructions
    users = users_of(computation)
    holders = _holders(instructions)
    readers = _reader_counts(instructions, holders, computation.root)
    number = {i: n for n, i in enumerate(instructions)}
    waiting = {i: len(set(i.operands)) for i in instructions}
    heap = [(_growth(i, holders, readers), number[i]) for i in instructions if not waiting[i]]
    heapq.heapify(heap)
    order: list[Instruction] = []
    while heap:
        growth, n = heapq.heappop(heap)
        i = instructions[n]
        now = _growth(i, holders, readers)
        if now != growth:
            heapq.heappush(heap, (now, n))
            continue
        order.append(i)
        for h in dict.fromkeys(h for o in i.operands for h in holders[o]):
            readers[h] -= 1
        for u in dict.fromkeys(users[i]):
            waiting[u] -= 1
            if not waiting[u]:
                heapq.heappush(heap, (_growth(u, holders, readers), number[u]))
    return order


def _reader_counts(
    instructions: Sequence[Instruction], holders: Mapping[Instruction, tuple[Instruction, ...]], root: Instruction
) -> dict[Instruction, int]:
    readers = dict.fromkeys(instructions, 0)
    for i in instructions:
        for h in dict.fromkeys(h for o in i.operands for h in holders[o]):
            readers[h] += 1
    for h in holders[root]:
        readers[h] += 1
    return readers


def _growth(
    i: Instruction, holders: Mapping[Instruction, tuple[Instruction, ...]], readers: Mapping[Instruction, int]
) -> int:
    """Bytes alive after ``i`` minus before."""
    freed = sum(_memory(h) for h in dict.fromkeys(h for o in i.operands for h in holders[o]) if readers[h] == 1)
    return _memory(i) - freed
