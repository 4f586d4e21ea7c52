"""Custom calls that are another name for one operation become that operation, which has a rule of its own."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations, rebuild_module
from shardc.hlo.transforms.known_custom_calls import expand_custom_call
from shardc.sharding.rules.custom_call import RULE_ATTRIBUTE

__all__ = ["RewriteNamedCalls"]

#: What runs the computations that it calls as programs.
_RUN = ("call", "while", "conditional", "fusion", "async-start", "custom-call")


@dataclass(frozen=True, slots=True)
class RewriteNamedCalls:
    """``custom-call(x), custom_call_target="mhlo.topk"`` is ``topk(x)``, and so on.

    What reducers and comparators say of shardings is nothing: they are scalar programs.
    """

    name: str = "rewrite-named-calls"
    why: str = "a custom call that equals an operation is split like that operation"

    def run(self, module: Module) -> Module:
        inside = {i for c in _apply(module) for i in c}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old in inside and old.attrs.get("custom_call_target") == "Sharding":
                return operands[0]
            return _rewrite(old, operands)

        return rebuild_module(module, change)


def _apply(module: Module) -> set[Computation]:
    """Computations that reductions, sorts and the like apply to elements."""
    found: set[Computation] = set()
    for i in module.instructions():
        if i.opcode not in _RUN:
            found.update(c for _, c in called_computations(i))
    return found


def _rewrite(op: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    told = dict(op.attrs.get("frontend_attributes", ()))
    if op.opcode != "custom-call" or op.attrs.get("custom_call_has_side_effect") or RULE_ATTRIBUTE in told:
        return None
    try:
        meaning = expand_custom_call(op)
    except ShardcError:  # what has no such form is refused when it is compiled
        return None
    if meaning is None or len(meaning.instructions) != len(meaning.parameters) + 1:
        return None
    one = meaning.root
    if one.opcode == "custom-call" or one.operands != meaning.parameters:
        return None
    return one.replace(operands=operands, name=op.name, sharding=op.sharding, metadata=op.metadata, origin=op.origin)
