"""Arrays without elements have one value only: it is written down, so that no operation has to make a part of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shardc.hlo.ir.ir import Instruction, Module, has_side_effect, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.sharding import Sharding

__all__ = ["FillEmpty"]


@dataclass(frozen=True, slots=True)
class FillEmpty:
    """``%x = f32[0,6] dot(...)`` is ``f32[0,6] broadcast(0)``, in the same layout."""

    name: str = "fill-empty"
    why: str = "an empty array needs no computation and no communication"

    def run(self, module: Module) -> Module:
        if not any(_is_made(i) for i in module.instructions()):
            return module

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if not _is_made(old):
                return None
            zero = Literal(np.zeros((), old.shape.dtype.numpy))
            scalar = Instruction(
                "constant",
                old.shape.with_dims(()),
                (),
                {"literal": zero},
                name=f"{old.name}.zero",
                sharding=replace(old.sharding, dims=(), unreduced=()) if isinstance(old.sharding, Sharding) else None,
                metadata=old.metadata,
            )
            return old.replace(opcode="broadcast", operands=(scalar,), attrs={"dimensions": ()})

        return rebuild_module(module, change)


def _is_made(i: Instruction) -> bool:
    """Whether the instruction makes an array without elements, and not by a broadcast of a constant."""
    return (
        i.shape.is_array
        and 0 in i.shape.dims
        and i.opcode != "parameter"
        and not (i.opcode == "broadcast" and i.operands[0].opcode == "constant")
        and not has_side_effect(i)
    )
