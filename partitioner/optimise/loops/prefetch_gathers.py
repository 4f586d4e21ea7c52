"""Software pipelining of loops: one iteration gathers what the next one needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Computation, Instruction, Module, Origin, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.loops.loop_counter import LoopCounter, carried_element
from shardc.partitioner.optimise.loops.carry import Carry, change_loops, part_of, retype
from shardc.partitioner.optimise.loops.stages import Worth, cheap, copy_instructions, counting, splittable
from shardc.partitioner.options import Choice

__all__ = ["PrefetchGathers", "computed_from", "known_early", "rotate_loop"]

_NOTE = "for the next iteration"


@dataclass(frozen=True, slots=True)
class PrefetchGathers:
    """A collective on what an iteration knows of the next one (its layer's weights) happens one iteration earlier.

    The first is done before the loop; the last iteration, which has nothing to fetch, follows the loop. So nothing
    travels that did not before. Each result is held for an iteration more. ``auto`` does so where the modelled time on
    the ``machine`` is less and its memory, or ``memory``, suffices. Loops whose names are in ``kept`` stay as they are.
    """

    choice: Choice = "auto"
    machine: Machine | None = None
    memory: float | None = None
    kept: frozenset[str] | None = None
    name: str = "prefetch-gathers"
    why: str = "the next layer's weights are gathered while this one computes"

    def run(self, module: Module) -> Module:
        worth = Worth.of(module, self.choice, self.machine, self.memory)
        if worth is None:
            return module
        return change_loops(module, lambda carry, around: _prefetch(carry, worth), kept=self.kept or frozenset())


def _prefetch(carry: Carry, worth: Worth) -> Sequence[Instruction] | None:
    count = counting(carry)
    if count is None or (count.trips or 0) < 2 or not splittable(carry):
        return None
    fetched = _known_early(carry)
    nbytes = sum(i.shape.nbytes for i in fetched)
    if not fetched or not worth.pays(carry.body, fetched, nbytes):
        return None
    return rotate_loop(carry, count, fetched)


def _known_early(carry: Carry) -> list[Instruction]:
    """Collectives that the next iteration could do at once, because their operands come cheaply from elements that do
    (a counter, weights that stay); only those that change and that the rest of the iteration waits for."""
    body, root = carry.body, carry.body.root
    early = known_early(body)
    still = {k for k in early if carried_element(root.operands[k], body) == k}
    known = computed_from(body, early, travelling=True)
    moving = known - computed_from(body, still, travelling=True)
    users = users_of(body)
    awaited: set[Instruction] = set()
    for i in reversed(body.instructions):
        if any((u not in known and u is not root) or (u in awaited and u.opcode not in COLLECTIVES) for u in users[i]):
            awaited.add(i)
    return [i for i in body if i in moving and i in awaited and i.opcode in COLLECTIVES and not i.shape.is_tuple]


def known_early(body: Computation) -> set[int]:
    """Elements of a loop's state that the next iteration gets without waiting for what this one computes."""
    early = set(range(len(body.root.operands)))
    while True:
        known = computed_from(body, early, travelling=False)
        kept = {k for k in early if body.root.operands[k] in known}
        if kept == early:
            return early
        early = kept


def computed_from(body: Computation, early: set[int], *, travelling: bool) -> set[Instruction]:
    """What comes from these elements through cheap instructions, and collectives if they may be among them."""
    known: set[Instruction] = set()
    for i in body:
        k = carried_element(i, body)
        if k is not None:
            fits = k in early
        elif i.opcode in COLLECTIVES:
            fits = travelling and all(o in known for o in i.operands)
        else:
            fits = i is not body.root and (i.opcode == "constant" or cheap(i)) and all(o in known for o in i.operands)
        if fits:
            known.add(i)
    return known


def rotate_loop(carry: Carry, count: LoopCounter, fetched: list[Instruction]) -> list[Instruction]:
    """The loop, one iteration shorter, whose state has what is ``fetched``, and the last iteration behind it."""
    body = carry.body
    size = len(carry.initial)
    shape = tuple_shape(*(x.shape.plain for x in body.root.operands), *(i.shape.plain for i in fetched))
    place = {i: size + n for n, i in enumerate(fetched)}
    start = [*carry.initial, *copy_instructions(fetched, body, carry.initial, {})]
    parameter = body.parameters[0].replace(shape=shape)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in place:
            return part_of(parameter, place[old])
        if old is body.root:
            following = copy_instructions(fetched, body, operands, {})
            return old.replace(operands=(*operands, *map(_note, following)), shape=shape)
        return None

    condition = retype(
        carry.condition,
        carry.condition.parameters[0].replace(shape=shape),
        lambda old, operands: _sooner(old, count) if old is count.bound else None,
    )
    loop = carry.rebuilt(start, condition, retype(body, parameter, change))
    done = {i: part_of(loop, k) for i, k in place.items()}
    return copy_instructions(body.root.operands, body, [part_of(loop, k) for k in range(size)], done)


def _sooner(bound: Instruction, count: LoopCounter) -> Instruction:
    """The bound for one iteration less."""
    shape = bound.shape.plain
    return Instruction("constant", shape, (), {"literal": Literal.full(shape, count.limit - count.step)})


def _note(i: Instruction) -> Instruction:
    old = i.origin or Origin("")
    i.origin = Origin("; ".join(r for r in (old.reason, _NOTE) if r), old.rule, old.value, old.axes, old.causes)
    return i
