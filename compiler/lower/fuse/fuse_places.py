"""Fuse places: a sort of which slices of a few places are read becomes one kernel with them, which need not sort."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from shardc.compiler.lower.fuse.fuse_products import part_of
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations
from shardc.hlo.ir.types import tuple_shape

if TYPE_CHECKING:
    from shardc.compiler.lower.fuse.place_plan import PlacePlan

__all__ = ["FusePlaces"]


@dataclass(frozen=True, slots=True)
class FusePlaces:
    """Sorts of one array by numbers, in long rows, with the slices that read them."""

    name: str = "fuse-places"
    why: str = "a few places of sorted rows are found by walks over the rows, and the sorted rows need no memory"
    looks_at: ClassVar[frozenset[str]] = frozenset({"sort"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _fused, only=step_computations(module))


def _fused(computation: Computation) -> Computation:
    if not any(i.opcode == "sort" for i in computation):
        return computation
    from shardc.compiler.lower.fuse.place_plan import plan_of_reads

    users = users_of(computation)
    plans = {
        i: plan
        for i in computation
        if i is not computation.root and (plan := plan_of_reads(i, list(dict.fromkeys(users[i])))) is not None
    }
    if not plans:
        return computation
    new: dict[Instruction, Instruction] = {}
    body: list[Instruction] = []
    for old in computation:
        plan = plans.get(old.operands[0]) if old.opcode == "slice" else None
        if old in plans:
            new[old] = _fusion(plans[old], new[old.operands[0]])
        elif plan is not None:
            fusion = new[plan.sort]
            new[old] = part_of(fusion, plan.slices.index(old), old) if len(plan.slices) > 1 else fusion
            if new[old] is fusion:
                continue
        else:
            changed = any(new[o] is not o for o in old.operands)
            new[old] = old.replace(operands=tuple(new[o] for o in old.operands)) if changed else old
        body.append(new[old])
    return Computation(computation.name, body, new[computation.root])


def _fusion(plan: PlacePlan, operand: Instruction) -> Instruction:
    """The kernel as one instruction; its computation holds clones."""
    given = Instruction("parameter", operand.shape, (), MappingProxyType({"index": 0}), name="p0")
    sort = plan.sort.replace(operands=(given,), sharding=None)
    parts = [s.replace(operands=(sort,), sharding=None) for s in plan.slices]
    inner, root = [given, sort, *parts], parts[0]
    if len(parts) > 1:
        root = Instruction("tuple", tuple_shape(*(p.shape for p in parts)), parts, name="results")
        inner.append(root)
    return Instruction(
        "fusion",
        root.shape,
        (operand,),
        MappingProxyType({"kind": "kCustom", "calls": Computation("fused_places", inner, root)}),
        name="fused_places",
        metadata=plan.sort.metadata,
        origin=plan.sort.origin,
    )
