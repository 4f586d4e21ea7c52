"""Join pairs: a start and its done become the one operation that they are, for passes that know nothing of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from shardc.hlo.asynchronous import is_done, is_start, joined
from shardc.hlo.ir import Instruction, Module, rebuild_module
from shardc.hlo.simplify.make import keep_reachable

__all__ = ["JoinPairs", "was_asynchronous"]

_MARK = ("_shardc_asynchronous", "true")


@dataclass(frozen=True, slots=True)
class JoinPairs:
    """The program's own pairs become collectives that remember it; `ConvertAsync` makes pairs of them again."""

    name: str = "join-pairs"
    why: str = "what is rewritten next is one operation; when it is started is decided last"

    def run(self, module: Module) -> Module:
        after = rebuild_module(module, _change)
        return after if after is module else keep_reachable(after, after.entry)


def was_asynchronous(i: Instruction) -> bool:
    """Did the program have the collective ``i`` as a pair?"""
    return _MARK in i.attrs.get("frontend_attributes", ())


def _change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if is_start(old):
        whole = joined(old, operands)
        kept = tuple(whole.attrs.get("frontend_attributes", ()))
        return whole.replace(attrs=MappingProxyType({**whole.attrs, "frontend_attributes": (*kept, _MARK)}))
    if is_done(old):
        return operands[0]
    return None
