"""Combined collectives taken apart again."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.part_names import part_name

__all__ = ["SeparateCollectives"]


@dataclass(frozen=True, slots=True)
class SeparateCollectives:
    """Collectives with ``opcodes`` of several operands as one collective per operand.

    Each part has the collective's name with a number, and the source of the ``get-tuple-element`` that read it.
    `CombineCollectives` joins them again.
    """

    opcodes: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
    name: str = "separate-collectives"
    why: str = "what makes one operand need not wait for what makes the others"

    def run(self, module: Module) -> Module:
        if not any(i.shape.is_tuple and i.opcode in self.opcodes for i in module.instructions()):
            return module
        read: dict[Instruction, dict[int, Instruction]] = {}
        for i in module.instructions():
            if i.opcode == "get-tuple-element" and i.operands[0].opcode in self.opcodes:
                read.setdefault(i.operands[0], {}).setdefault(i.attrs["index"], i)
        parts: dict[Instruction, tuple[Instruction, ...]] = {}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode in self.opcodes and old.shape.is_tuple:
                named = read.get(old, {})
                alone = tuple(
                    old.replace(
                        shape=shape,
                        operands=(x,),
                        name=part_name(old.name, k + 1),
                        sharding=None,
                        metadata=named.get(k, old).metadata,
                    )
                    for k, (shape, x) in enumerate(zip(old.shape.elements, operands, strict=True))
                )
                whole = Instruction(
                    "tuple", old.shape, alone, name=old.name, sharding=old.sharding, metadata=old.metadata
                )
                parts[whole] = alone
                return whole
            if old.opcode == "get-tuple-element" and operands[0] in parts:
                index: int = old.attrs["index"]
                return parts[operands[0]][index]
            return None

        return rebuild_module(module, change)
