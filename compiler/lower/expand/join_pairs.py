"""Join pairs: a start and its done become the one operation that they are, for passes that know nothing of pairs."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair, mark_pair
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable

__all__ = ["JoinPairs"]


@dataclass(frozen=True, slots=True)
class JoinPairs:
    """The program's own pairs become collectives that remember it; `ConvertAsync` makes pairs of them again."""

    name: str = "join-pairs"
    why: str = "passes rewrite one operation instead of a pair; a late pass splits it again"

    def run(self, module: Module) -> Module:
        after = rebuild_module(module, _change)
        return after if after is module else keep_reachable(after, after.entry)


def _change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if is_start(old):
        return mark_pair(join_pair(old, operands))
    if is_done(old):
        return operands[0]
    return None
