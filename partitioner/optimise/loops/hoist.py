"""Taking out of a loop what is the same in every iteration."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shardc.hlo.ir.ir import Computation, Instruction, called_computations, has_side_effect, topological
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.optimise.loops.carry import Carry, part_of, retype

__all__ = ["hoist", "invariant", "needs"]


def hoist(carry: Carry, moved: Collection[Instruction]) -> Sequence[Instruction] | None:
    """The loop with ``moved``, which are invariant, computed before it and carried.

    What they are computed from goes along; one value per element of the loop's state, None when nothing moves.
    """
    outer = _read(carry.body, moved)
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
    condition = retype(carry.condition, carry.condition.parameters[0].replace(shape=shape))
    loop = carry.rebuilt(start, condition, retype(carry.body, parameter, change))
    return [part_of(loop, k) for k in range(count)]


def _read(body: Computation, moved: Collection[Instruction]) -> list[Instruction]:
    """Those of ``moved`` that the body still reads when they are given, in program order."""
    given, seen = frozenset(moved), set[Instruction]()
    work = [body.root, *(i for i in body if has_side_effect(i))]
    while work:
        x = work.pop()
        if x not in seen:
            seen.add(x)
            if x not in given:
                work.extend(x.operands)
    return [i for i in body if i in seen and i in given]


def invariant(body: Computation) -> set[Instruction]:
    """Instructions that give the same in every iteration."""
    still: set[Instruction] = set()
    for i in body:
        k = carried_element(i, body)
        if k is not None:
            same = carried_element(body.root.operands[k], body) == k
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


def needs(i: Instruction, still: Collection[Instruction]) -> set[Instruction]:
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
        k = carried_element(x, carry.body)
        if x is stop or x in copies:
            continue
        copies[x] = carry.initial[k] if k is not None else x.replace(operands=tuple(copies[o] for o in x.operands))
    return copies[i]
