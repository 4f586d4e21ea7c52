"""One collective instead of several equal ones."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["DeduplicateCollectives"]


@dataclass(frozen=True, slots=True)
class DeduplicateCollectives:
    """A collective on the same operands with the same attributes as an earlier one is that one."""

    name: str = "deduplicate-collectives"
    why: str = "the same bytes need not be sent twice"

    def run(self, module: Module) -> Module:
        seen = [_identity(i, i.operands) for i in module.instructions() if i.opcode in COLLECTIVES]
        if len(set(seen)) == len(seen):
            return module
        known: dict[object, Instruction] = {}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old.opcode not in COLLECTIVES:
                return None
            key = _identity(old, operands)
            if key not in known:
                known[key] = old if operands == old.operands else old.replace(operands=operands)
            return known[key]

        return rebuild_module(module, change)


def _identity(op: Instruction, operands: tuple[Instruction, ...]) -> object:
    """What makes two collectives the same, on given operands."""
    names = sorted(k for k in op.attrs if k != "channel_id")
    return (op.opcode, operands, *((k, _key(op.attrs[k])) for k in names))


def _key(value: object) -> object:
    """Attributes compare by value, simple reducers by what they do."""
    if not isinstance(value, Computation):
        return value
    root = value.root
    simple = len(value.instructions) == 3 and set(root.operands) == set(value.parameters)
    return (root.opcode, root.shape) if simple else value
