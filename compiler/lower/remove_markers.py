"""Remove instructions that only spoke to earlier stages."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.custom_calls import MARKERS
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Instruction, Module, rebuild_module
from shardc.hlo.simplify.make import keep_reachable

__all__ = ["RemoveMarkers"]

#: Opcodes whose value is their first operand.
_TRANSPARENT = frozenset({"optimization-barrier", "domain", "add-dependency", "copy"})

#: Forms of a pair that begin and end an operation, and the opcode that does it at once.
_STARTS = {
    "all-reduce-start": "all-reduce",
    "all-gather-start": "all-gather",
    "collective-permute-start": "collective-permute",
}
_DONES = frozenset({"all-reduce-done", "all-gather-done", "collective-permute-done", "copy-done"})


@dataclass(frozen=True, slots=True)
class RemoveMarkers:
    """Barriers, domains, copies and sharding marks become their operand; async pairs become one operation."""

    name: str = "remove-markers"
    why: str = "barriers, domains, copies and sharding marks mean nothing to a device"

    def run(self, module: Module) -> Module:
        module = rebuild_module(module, _change)
        return keep_reachable(module, module.entry)


def _change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    opcode = old.opcode
    if opcode in _TRANSPARENT or opcode in _DONES or opcode == "copy-start":
        return operands[0]
    if opcode == "custom-call" and old.attrs.get("custom_call_target") in MARKERS:
        if old.shape.plain != operands[0].shape.plain:
            raise UnsupportedError(
                f"custom call {old.attrs['custom_call_target']} changes the shape and was not partitioned",
                where=f"%{old.name}",
                fix="partition the module before compiling it",
            )
        return operands[0]
    if opcode in _STARTS:
        return _synchronous(old, operands)
    return None


def _synchronous(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """The start of an async pair as the whole operation; its done becomes its operand's value."""
    shape = old.shape
    if old.opcode != "all-reduce-start":
        # (operands, results, contexts...): the result is the second element.
        shape = shape.elements[1]
    return old.replace(opcode=_STARTS[old.opcode], shape=shape, operands=operands)
