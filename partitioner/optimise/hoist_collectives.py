"""Collectives on what a loop never changes happen once, before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.hlo.ir import Computation, Instruction, Module, called_computations, topological
from shardc.hlo.opset import COLLECTIVES, has_side_effect
from shardc.hlo.types import tuple_shape
from shardc.partitioner.optimise.carry import Carry, change_loops, element, part_of, retyped

__all__ = ["HoistCollectives"]


@dataclass(frozen=True, slots=True)
class HoistCollectives:
    """A collective whose operands are the same in every iteration becomes an element of the loop's state."""

    name: str = "hoist-collectives"
    why: str = "weights that a loop does not change are gathered once"

    def run(self, module: Module) -> Module:
        return change_loops(module, _hoisted)


def _hoisted(carry: Carry, around: Computation) -> Sequence[Instruction] | None:
    still = _invariant(carry.body)
    moved = [i for i in carry.body if i in still and i.opcode in COLLECTIVES and not i.shape.is_tuple]
    # What a hoisted collective is computed from goes along with it.
    outer = [i for i in moved if not any(i in _needs(o, still) for o in moved if o is not i)]
    if not outer:
        return None
    count = len(carry.initial)
    shape = tuple_shape(*(x.shape for x in carry.body.root.operands), *(i.shape for i in outer))
    place = {i: count + n for n, i in enumerate(outer)}
    parameter = carry.body.parameters[0].replace(shape=shape)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in place:
            return part_of(parameter, place[old])
        if old is carry.body.root:
            kept = (part_of(parameter, n) for n in place.values())
            return old.replace(operands=(*operands, *kept), shape=shape)
        return None

    copies: dict[Instruction, Instruction] = {}
    start = [*carry.initial, *(_outside(i, carry, copies) for i in outer)]
    condition = retyped(carry.condition, carry.condition.parameters[0].replace(shape=shape))
    loop = carry.rebuilt(start, condition, retyped(carry.body, parameter, change))
    return [part_of(loop, k) for k in range(count)]


def _invariant(body: Computation) -> set[Instruction]:
    """Instructions that give the same in every iteration."""
    still: set[Instruction] = set()
    for i in body:
        k = element(i, body)
        if k is not None:
            same = element(body.root.operands[k], body) == k
        elif i.opcode == "parameter" or has_side_effect(i):
            same = False
        else:
            same = all(o in still for o in i.operands) and _plain(i)
        if same:
            still.add(i)
    return still


def _plain(i: Instruction) -> bool:
    """Neither a loop nor a branch: reducers are all it may call."""
    return all(role == "to_apply" for role, _ in called_computations(i)) and i.opcode != "call"


def _needs(i: Instruction, still: set[Instruction]) -> set[Instruction]:
    """Everything that ``i`` is computed from."""
    found: set[Instruction] = set()
    work = list(i.operands)
    while work:
        x = work.pop()
        if x in still and x not in found:
            found.add(x)
            work.extend(x.operands)
    return found


def _outside(i: Instruction, carry: Carry, copies: dict[Instruction, Instruction]) -> Instruction:
    """``i`` of the body, computed from the loop's initial state."""
    stop = carry.body.parameters[0]
    for x in topological([i]):
        k = element(x, carry.body)
        if x is stop or x in copies:
            continue
        copies[x] = carry.initial[k] if k is not None else x.replace(operands=tuple(copies[o] for o in x.operands))
    return copies[i]
