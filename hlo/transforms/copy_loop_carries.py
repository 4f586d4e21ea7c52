"""Loop carries that a body returns as they came, through a copy.

XLA's way from MLIR to HLO captures such carries instead of carrying them, and then finds fewer of them than the loop's
manual shardings say. A copy, which every compiler removes, keeps a loop and its shardings as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module

__all__ = ["CopyLoopCarries"]


@dataclass(frozen=True, slots=True)
class CopyLoopCarries:
    """A ``copy`` of every element that a ``while`` body returns where it came from; copies stay as they are."""

    name: str = "copy-loop-carries"
    why: str = "XLA would capture what a loop carries unchanged, and count fewer carries than shardings"

    def run(self, module: Module) -> Module:
        roots = {i.attrs["body"].root for i in module.instructions() if i.opcode == "while"}
        if not any(_is_unchanged(root, k, o) for root in roots for k, o in enumerate(root.operands)):
            return module

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            return _copying(old, operands) if old in roots else None

        return rebuild_module(module, change)


def _copying(root: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if not any(_is_unchanged(root, k, o) for k, o in enumerate(root.operands)):
        return None
    kept = tuple(
        Instruction("copy", new.shape, (new,), name=f"{new.name}.kept", sharding=new.sharding)
        if _is_unchanged(root, k, was)
        else new
        for k, (was, new) in enumerate(zip(root.operands, operands, strict=True))
    )
    return root.replace(operands=kept)


def _is_unchanged(root: Instruction, index: int, operand: Instruction) -> bool:
    return (
        root.opcode == "tuple"
        and operand.opcode == "get-tuple-element"
        and operand.attrs["index"] == index
        and operand.operands[0].opcode == "parameter"
    )
