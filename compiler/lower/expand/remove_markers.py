"""Remove instructions that only spoke to earlier stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.custom_calls import MARKERS
from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.host_memory.memory_kinds import (
    DEVICE,
    PINNED_HOST,
    annotate,
    has_host_memory,
    is_host,
    memory_kind_of,
)
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable

__all__ = ["RemoveMarkers"]

#: Opcodes whose value is their first operand.
_TRANSPARENT = frozenset({"optimization-barrier", "domain", "add-dependency", "copy", "copy-start", "copy-done"})


@dataclass(frozen=True, slots=True)
class RemoveMarkers:
    """Barriers, domains, copies and sharding marks become their operand; barriers only with ``barriers``.

    In a program that keeps values in host memory, calls that say where remain, in XLA's spelling.
    """

    barriers: bool = True
    name: str = "remove-markers"
    why: str = "barriers, domains, copies and sharding marks mean nothing to a device"
    looks_at: ClassVar[frozenset[str]] = _TRANSPARENT | {"custom-call"}

    def run(self, module: Module) -> Module:
        host = has_host_memory(module)

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            kept = old.opcode == "optimization-barrier" and not self.barriers
            if host and (kind := _placement(old)) is not None:
                return None if _is_plain(old) else annotate(operands[0], kind).replace(name=old.name)
            return None if kept else _change(old, operands)

        module = rebuild_module(module, change)
        return keep_reachable(module, module.entry)


def _placement(i: Instruction) -> str | None:
    """Where ``i`` says that its value goes: a call, or a copy that the program's layouts make a move."""
    if i.opcode in ("copy", "copy-done"):
        return PINNED_HOST if is_host(i.shape) else DEVICE
    return memory_kind_of(i)


def _is_plain(i: Instruction) -> bool:
    """A call in XLA's spelling, or a move that a pass made of one."""
    return is_host_move(i) or (
        i.opcode == "custom-call" and i.attrs["custom_call_target"] in ("MoveToHost", "MoveToDevice")
    )


def _change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    opcode = old.opcode
    if opcode in _TRANSPARENT:
        return operands[0]
    if opcode == "custom-call" and old.attrs.get("custom_call_target") in MARKERS:
        if old.shape.plain != operands[0].shape.plain:
            raise UnsupportedError(
                f"custom call {old.attrs['custom_call_target']} changes the shape and was not partitioned",
                where=f"%{old.name}",
                fix="partition the module before compiling it",
            )
        return operands[0]
    return None
