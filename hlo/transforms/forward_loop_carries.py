"""Loop carries that a body returns as they came, through a copy.

XLA's way from MLIR to HLO captures such carries instead of carrying them, and then finds fewer of them than the loop's
manual shardings say. A copy, which every compiler removes, keeps a loop and its shardings as they are written.
"""

from __future__ import annotations

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module

__all__ = ["pass_carries_on"]


def pass_carries_on(module: Module) -> Module:
    """``module`` with a ``copy`` of every element that a ``while`` body returns in the place that it came from.

    The same module when there are none. What is a copy already stays.
    """
    roots = {i.attrs["body"].root for i in module.instructions() if i.opcode == "while"}
    if not any(_unchanged(root, k, o) for root in roots for k, o in enumerate(root.operands)):
        return module

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old not in roots or not any(_unchanged(old, k, o) for k, o in enumerate(old.operands)):
            return None
        kept = tuple(
            Instruction("copy", new.shape, (new,), name=f"{new.name}.kept", sharding=new.sharding)
            if _unchanged(old, k, was)
            else new
            for k, (was, new) in enumerate(zip(old.operands, operands, strict=True))
        )
        return old.replace(operands=kept)

    return rebuild_module(module, change)


def _unchanged(root: Instruction, index: int, operand: Instruction) -> bool:
    return (
        root.opcode == "tuple"
        and operand.opcode == "get-tuple-element"
        and operand.attrs["index"] == index
        and operand.operands[0].opcode == "parameter"
    )
