"""Asynchronous pairs of a global program become the operations that they start and finish.

What overlaps with what is decided after partitioning, so that here a pair says no more than its operation does.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module

__all__ = ["ClosePairs"]

#: What finishes a pair -> the operation that it is.
_DONE = {
    "copy-done": "copy",
    "all-reduce-done": "all-reduce",
    "all-gather-done": "all-gather",
    "collective-permute-done": "collective-permute",
}
#: Attributes that only a pair has.
_OF_PAIRS = frozenset(("async_execution_thread", "output_to_operand_aliasing", "cross_program_prefetch_index"))


@dataclass(frozen=True, slots=True)
class ClosePairs:
    """No ``async-``, ``copy-`` and collective ``-start``, ``-update`` and ``-done``."""

    name: str = "close-pairs"
    why: str = "overlap is decided after partitioning"

    def run(self, module: Module) -> Module:
        if not any(i.opcode == "async-done" or i.opcode in _DONE for i in module.instructions()):
            return module
        return rebuild_module(module, _close)


def _close(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if old.opcode == "async-done":
        return _make_operation(old, _start(operands[0]), "call")
    if old.opcode in _DONE:
        return _make_operation(old, operands[0], _DONE[old.opcode])
    return None


def _start(x: Instruction) -> Instruction:
    while x.opcode == "async-update":
        x = x.operands[0]
    return x


def _make_operation(done: Instruction, start: Instruction, opcode: str) -> Instruction | None:
    """The operation that ``start`` began, where ``done`` gives its result."""
    if not start.opcode.endswith("-start"):
        return None  # the pair goes through a loop's state: it stays one
    attrs = {k: v for k, v in start.attrs.items() if k not in _OF_PAIRS}
    if opcode == "call":
        attrs = {"to_apply": attrs["calls"]}
    return Instruction(
        opcode,
        done.shape,
        start.operands,
        attrs,
        name=done.name,
        sharding=done.sharding,
        metadata=done.metadata,
        origin=done.origin,
    )
