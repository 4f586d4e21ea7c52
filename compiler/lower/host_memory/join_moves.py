"""Join moves: copies between host and device become one operation each, until something is scheduled beside them."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair
from shardc.hlo.ir.host_memory.host_moves import is_host_move, moves_to_host
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable, map_computations, step_computations

__all__ = ["JoinMoves"]


@dataclass(frozen=True, slots=True)
class JoinMoves:
    """The pairs of `PlaceValues` become the moves that they are; `ConvertAsync` makes pairs of those that pay.

    A value goes to the host where it is made, and comes back where it is first read.
    """

    name: str = "join-moves"
    why: str = "passes order one operation instead of a pair; a late pass splits it again"

    def run(self, module: Module) -> Module:
        after = rebuild_module(module, _change, frozenset({"async-start", "async-done"}))
        if after is module:
            return module
        after = keep_reachable(after, after.entry)
        return map_computations(after, _ordered, only=step_computations(after))


def _change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if is_start(old):
        move = join_pair(old, operands)
        return move if is_host_move(move) else None
    if is_done(old) and is_host_move(join_pair(old.operands[0])):
        return operands[0]
    return None


def _ordered(c: Computation) -> Computation:
    """Moves to the host behind the last of their operands, moves to the device before the first of their readers."""
    moves = {i for i in c if is_host_move(i)}
    if not moves:
        return c
    number = {i: n for n, i in enumerate(c)}
    last = {i: max(i.operands, key=number.__getitem__) for i in moves if moves_to_host(i)}
    behind: dict[Instruction, list[Instruction]] = {}
    for move, operand in last.items():
        behind.setdefault(operand, []).append(move)
    order: dict[Instruction, None] = {}

    def put(i: Instruction) -> None:
        waiting = [i]
        while waiting:
            at = waiting.pop()
            if at in order:
                continue
            missing = [o for o in at.operands if o not in order]
            if missing:
                waiting += (at, *missing)
                continue
            order[at] = None
            waiting += [m for m in behind.get(at, ()) if all(o in order for o in m.operands)]

    for i in c:
        if i not in moves or i is c.root or i in last:
            put(i)
    put(c.root)
    return Computation(c.name, order, c.root)
