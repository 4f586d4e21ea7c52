"""One reduction of a sum instead of a sum of reductions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.partitioner.emit.emitter import identity_of
from shardc.partitioner.optimise.reduction import again, kind, reducer

__all__ = ["Reassociate"]

_NOTE = "added up before it is reduced"


@dataclass(frozen=True, slots=True)
class Reassociate:
    """``R(a) + R(b)`` becomes ``R(a + b)`` where nobody else reads the two; likewise for differences, max and min.

    One all-reduce after another over other axes is one over all of them. What is gathered only to be reduced is
    reduced by each member first, and then among them.
    """

    name: str = "reassociate"
    why: str = "values added before the reduction are sent once"

    def run(self, module: Module) -> Module:
        return rebuild_computations(module, _reassociate)


def _reassociate(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    if not any(reducer(i) or i.opcode == "all-gather" for i in computation):
        return rebuild_computation(computation, None, called)
    users = users_of(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        made = remade(old, operands)
        # A root keeps the sharding of its global value.
        return made if made is None else made.replace(sharding=old.sharding)

    def remade(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        alone = all(len(users[o]) == 1 and o is not computation.root for o in old.operands[:2])
        if old.opcode in ("add", "subtract", "maximum", "minimum"):
            return _join(old, operands) if alone else None
        inner = old.operands[:1]
        if old.opcode == "all-reduce" and inner and len(users[inner[0]]) == 1:
            return _over_all_axes(old, operands)
        if old.opcode == "reduce" and len(operands) == 2 and len(users[inner[0]]) == 1:
            return _reduced_by_each(old, operands)
        return None

    return rebuild_computation(computation, change, called)


def _join(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """A sum, difference or extremum of two reductions."""
    a, b = operands
    fits = reducer(a) == ("add" if old.opcode == "subtract" else old.opcode) and reducer(b) == reducer(a)
    if not fits or kind(a) != kind(b):
        return None
    x, y = a.operands[0], b.operands[0]
    return again(a, old.replace(operands=(x, y), shape=x.shape), _NOTE)


def _over_all_axes(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """An all-reduce of an all-reduce over other axes."""
    (inner,) = operands if len(operands) == 1 else (old,)
    if inner.opcode != "all-reduce" or not reducer(old) or reducer(inner) != reducer(old):
        return None
    outer, first = old.attrs.get("replica_groups"), inner.attrs.get("replica_groups")
    if not isinstance(outer, AxisGroups) or not isinstance(first, AxisGroups) or outer.mesh != first.mesh:
        return None
    axes = (*first.axes, *outer.axes)
    if len({a.name for a in axes}) < len(axes):
        return None
    order = outer.mesh.axis_names.index
    groups = AxisGroups(outer.mesh, tuple(sorted(axes, key=lambda a: order(a.name))))
    merged = old.replace(operands=operands, attrs={**old.attrs, "replica_groups": groups})
    return again(merged, inner.operands[0], "over all axes at once")


def _reduced_by_each(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """A reduction over the dimension along which its operand is gathered."""
    gathered, initial = operands
    if gathered.opcode != "all-gather" or len(gathered.operands) != 1:
        return None
    body: Computation = old.attrs["to_apply"]
    whole = Instruction("all-reduce", old.shape, (gathered,), {"to_apply": body})
    opcode = reducer(whole)
    identity = initial.opcode == "constant" and opcode in ("add", "maximum", "minimum")
    (dim,) = gathered.attrs["dimensions"]
    if not identity or dim not in old.attrs["dimensions"]:
        return None
    if initial.attrs["literal"].splat != identity_of(opcode, initial.shape.dtype):
        return None
    own = old.replace(operands=(gathered.operands[0], initial))
    attrs = {k: v for k, v in gathered.attrs.items() if k not in ("channel_id", "dimensions")}
    made = gathered.replace(opcode="all-reduce", shape=old.shape, attrs={**attrs, "to_apply": body})
    return again(made, own, "reduced by each member before")
