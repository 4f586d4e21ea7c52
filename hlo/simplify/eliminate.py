"""Eliminate what is computed twice, and what nobody reads."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, topological
from shardc.hlo.ir.lapack import LAPACK
from shardc.hlo.ir.opset import has_side_effect
from shardc.hlo.simplify.make import effects, map_computations
from shardc.hlo.simplify.structure import Structure

__all__ = ["EliminateCommon", "EliminateDead", "has_equals"]

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
    """Is another instruction that does the same to the same operands the same value?

    Custom calls of which nothing is known are not; LAPACK's are functions of their operands, constraints no calls.
    """
    if i.opcode == "custom-call" and i.attrs.get("custom_call_target") not in (*LAPACK, "Sharding"):
        return False
    return i.opcode not in _NEVER_EQUAL and not has_side_effect(i)


@dataclass(frozen=True, slots=True)
class EliminateDead:
    """Keep what the results or side effects need."""

    name: str = "eliminate-dead"
    why: str = "drop values that nobody reads"

    def run(self, module: Module) -> Module:
        return map_computations(module, live_part)


def live_part(computation: Computation) -> Computation:
    """The instructions that the root, the parameters and side effects need, in their present order."""
    keep = [i for i in computation if i.opcode == "parameter"]
    live = set(topological([*keep, *effects(computation), computation.root]))
    if len(live) == len(computation.instructions):
        return computation
    return Computation(computation.name, (i for i in computation if i in live), computation.root)
