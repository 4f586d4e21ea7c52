"""Custom calls that are another name for one operation become that operation, which has a rule of its own."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.custom_calls import expansion
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir import Instruction, Module, rebuild_module
from shardc.sharding.rules.custom_call import RULE_ATTRIBUTE

__all__ = ["OpenCalls"]


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """``custom-call(x), custom_call_target="mhlo.topk"`` is ``topk(x)``, and so on."""

    name: str = "open-calls"
    why: str = "an operation by another name splits as well"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _opened)


def _opened(op: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    told = dict(op.attrs.get("frontend_attributes", ()))
    if op.opcode != "custom-call" or op.attrs.get("custom_call_has_side_effect") or RULE_ATTRIBUTE in told:
        return None
    try:
        meaning = expansion(op)
    except ShardcError:  # what has no such form is refused when it is compiled
        return None
    if meaning is None or len(meaning.instructions) != len(meaning.parameters) + 1:
        return None
    one = meaning.root
    if one.opcode == "custom-call" or one.operands != meaning.parameters:
        return None
    return one.replace(operands=operands, name=op.name, sharding=op.sharding, metadata=op.metadata, origin=op.origin)
