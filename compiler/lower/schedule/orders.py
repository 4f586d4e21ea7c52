"""Orders of instructions with few bytes alive: list schedules from either end by the bytes that an instruction adds,
and postorders of the operands, as Sethi and Ullman order expressions for registers (JACM 1970). None is best for every
program.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from shardc.compiler.lower.fuse.fusion_rules import is_alias
from shardc.hlo.ir.ir import Computation, Instruction, has_side_effect

__all__ = ["ORDERS", "Facts", "backwards", "depth_first", "forwards", "largest_first"]

#: Instructions that take no memory of their own.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "after-all", "while"})

Order = Sequence[Instruction]


class Facts:
    """The input of all orders: readers of each value, values that share memory, and the given order."""

    def __init__(self, computation: Computation) -> None:
        self.instructions = computation.instructions
        self.root = computation.root
        self.number = {i: n for n, i in enumerate(self.instructions)}
        self.operands = _operands(computation)
        self.users: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
        for i, operands in self.operands.items():
            for o in operands:
                self.users[o].append(i)
        self.holders: dict[Instruction, tuple[Instruction, ...]] = {}
        self.reads: dict[Instruction, tuple[Instruction, ...]] = {}
        self.readers: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
        for i in self.instructions:
            through = i.opcode in ("tuple", "get-tuple-element", "while") or is_alias(i)
            #: The instructions in whose memory the operands lie.
            self.reads[i] = tuple(dict.fromkeys(h for o in i.operands for h in self.holders[o]))
            self.holders[i] = self.reads[i] if through else (i,)
            for h in self.reads[i]:
                self.readers[h].append(i)
        self.memory = {i: 0 if i.opcode in _FREE or is_alias(i) else i.shape.nbytes for i in self.instructions}


def _operands(computation: Computation) -> dict[Instruction, tuple[Instruction, ...]]:
    """The predecessors of each instruction: its operands and, for side effects, the previous instruction with side
    effects."""
    out = {}
    before: tuple[Instruction, ...] = ()
    for i in computation:
        effect = has_side_effect(i)
        out[i] = tuple(dict.fromkeys((*i.operands, *(before if effect else ()))))
        before = (i,) if effect else before
    return out


def forwards(facts: Facts) -> Order:
    """Always take the ready instruction that adds the fewest bytes; the earlier one breaks ties."""
    readers = {i: len(r) for i, r in facts.readers.items()}
    for h in facts.holders[facts.root]:
        readers[h] += 1

    def growth(i: Instruction) -> int:
        return facts.memory[i] - sum(facts.memory[h] for h in facts.reads[i] if readers[h] == 1)

    def done(i: Instruction) -> Iterator[Instruction]:
        for h in facts.reads[i]:
            readers[h] -= 1
            if readers[h] == 1:
                yield from facts.readers[h]

    return _list_order(facts, facts.operands, facts.users, growth, done, 1)


def backwards(facts: Facts) -> Order:
    """From the end: always take the possible last instruction that leaves the fewest bytes alive before it; the later
    one breaks ties."""
    alive = set(facts.holders[facts.root])

    def growth(i: Instruction) -> int:
        added = sum(facts.memory[h] for h in facts.reads[i] if h not in alive)
        return added - (facts.memory[i] if i in alive else 0)

    def done(i: Instruction) -> Iterator[Instruction]:
        alive.discard(i)
        for h in facts.reads[i]:
            if h not in alive:
                alive.add(h)
                yield from facts.readers[h]

    return _list_order(facts, facts.users, facts.operands, growth, done, -1)[::-1]


def _list_order(
    facts: Facts,
    before: dict[Instruction, tuple[Instruction, ...]] | dict[Instruction, list[Instruction]],
    after: dict[Instruction, tuple[Instruction, ...]] | dict[Instruction, list[Instruction]],
    growth: Callable[[Instruction], int],
    done: Callable[[Instruction], Iterator[Instruction]],
    sign: int,
) -> list[Instruction]:
    """List scheduling by ``growth``; ``done`` returns the instructions whose growth falls when one is taken."""
    waiting = {i: len(before[i]) for i in facts.instructions}
    heap = [(growth(i), sign * facts.number[i]) for i in facts.instructions if not waiting[i]]
    heapq.heapify(heap)
    order: dict[Instruction, None] = {}
    while heap:
        _, n = heapq.heappop(heap)
        i = facts.instructions[sign * n]
        if i in order:
            continue
        order[i] = None
        for other in done(i):
            if not waiting[other] and other not in order:
                heapq.heappush(heap, (growth(other), sign * facts.number[other]))
        for other in after[i]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(heap, (growth(other), sign * facts.number[other]))
    return list(order)


def depth_first(facts: Facts) -> Order:
    """Operands right before their first reader, the last operand's first."""
    return _visit(facts, lambda i: facts.operands[i][::-1])


def largest_first(facts: Facts) -> Order:
    """Operands right before their first reader, those that need the most computed first."""
    below: dict[Instruction, int] = {}
    for i in facts.instructions:
        # A sum over paths, not over sets: bounded, because it doubles with every diamond.
        below[i] = min(facts.memory[i] + sum(below[o] for o in facts.operands[i]), 1 << 60)
    return _visit(facts, lambda i: sorted(facts.operands[i], key=lambda o: (below[o], facts.number[o])))


def _visit(facts: Facts, operands: Callable[[Instruction], Sequence[Instruction]]) -> Order:
    """Postorder from the root; ``operands`` lists operands in reverse order of their visit."""
    done: dict[Instruction, None] = {}
    for root in (facts.root, *facts.instructions):
        stack = [(root, False)]
        while stack:
            i, ready = stack.pop()
            if i in done:
                continue
            if ready:
                done[i] = None
            else:
                stack.append((i, True))
                stack.extend((o, False) for o in operands(i) if o not in done)
    return list(done)


ORDERS: tuple[Callable[[Facts], Order], ...] = (forwards, backwards, depth_first, largest_first)
