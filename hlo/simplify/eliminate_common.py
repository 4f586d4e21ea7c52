"""Eliminate what is computed twice."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect, rebuild_computation
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.make import map_computations
from shardc.hlo.transforms.structure import Structure

__all__ = ["EliminateCommon", "has_equals"]

#: Equal instructions of these are still different values.
_NEVER_EQUAL = frozenset({"parameter", "rng", "rng-get-and-update-state", "infeed", "after-all"})


@dataclass(frozen=True, slots=True)
class EliminateCommon:
    """Instructions that do the same to the same operands become one; so do equal computations."""

    name: str = "eliminate-common"
    why: str = "compute every value once"

    def run(self, module: Module) -> Module:
        structure = Structure()
        computations: dict[str, Computation] = {}

        def change(computation: Computation) -> Computation:
            changed = _one_of_each(computation, structure)
            return computations.setdefault(structure.computation(changed), changed)

        return map_computations(module, change)


def _one_of_each(computation: Computation, structure: Structure) -> Computation:
    first: dict[tuple[object, ...], Instruction] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not has_equals(old):
            return None
        key = (old.opcode, old.shape, operands, structure.attributes(old))
        found = first.get(key)
        if found is not None:
            return found
        first[key] = new = old if operands is old.operands else old.replace(operands=operands)
        return new

    return rebuild_computation(computation, change)


def has_equals(i: Instruction) -> bool:
    """Whether another instruction that does the same to the same operands has the same value.

    False for custom calls of which nothing is known. LAPACK's are functions of their operands, constraints no calls.
    """
    if i.opcode == "custom-call" and i.attrs.get("custom_call_target") not in (*LAPACK, "Sharding"):
        return False
    return i.opcode not in _NEVER_EQUAL and not has_side_effect(i)
