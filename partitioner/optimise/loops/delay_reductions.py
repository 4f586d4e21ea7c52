"""Software pipelining of loops: one iteration reduces what the one before has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.loops.loop_counter import LoopCounter, carried_element
from shardc.partitioner.optimise.loops.carry import Carry, change_loops, part_of, retype
from shardc.partitioner.optimise.loops.stages import Worth, cheap, copy_instructions, counting, splittable
from shardc.partitioner.options import Choice

__all__ = ["DelayReductions"]


@dataclass(frozen=True, slots=True)
class DelayReductions:
    """A collective whose result only goes into what a loop gathers up (its layer's gradients) happens one iteration
    later, together with what follows it.

    The first iteration, up to there, is done before the loop, the last one's collective after it. What it reads is
    held for an iteration more. ``auto`` does so where the modelled time on the ``machine`` is less and its memory,
    or ``memory``, suffices. Loops whose names are in ``kept`` stay as they are.
    """

    choice: Choice = "auto"
    machine: Machine | None = None
    memory: float | None = None
    kept: frozenset[str] | None = None
    name: str = "delay-reductions"
    why: str = "gradients of one layer are reduced while those of the next are made"

    def run(self, module: Module) -> Module:
        worth = Worth.of(module, self.choice, self.machine, self.memory)
        if worth is None:
            return module
        return change_loops(module, lambda carry, around: _delay(carry, worth), kept=self.kept or frozenset())


@dataclass(frozen=True, slots=True)
class _Tail:
    """``late`` instructions end in ``elements`` of the state that nothing else reads; ``held`` is what they need of
    the rest of the iteration."""

    late: frozenset[Instruction]
    elements: frozenset[int]
    held: tuple[Instruction, ...]


def _delay(carry: Carry, worth: Worth) -> Sequence[Instruction] | None:
    count = counting(carry)
    if count is None or (count.trips or 0) < 2 or not splittable(carry):
        return None
    tail = _tail(carry, count)
    if tail is None:
        return None
    moved = [i for i in carry.body if i in tail.late and i.opcode in COLLECTIVES]
    if not worth.pays(carry.body, moved, sum(i.shape.nbytes for i in tail.held)):
        return None
    return _rotate(carry, count, tail)


def _tail(carry: Carry, count: LoopCounter) -> _Tail | None:
    """Everything behind those collectives that may wait."""
    body = carry.body
    users = users_of(body)
    tested = {k for i in carry.condition if (k := carried_element(i, carry.condition)) is not None} | {count.index}
    late: set[Instruction] = set()
    ends: set[int] = set()
    for i in body:
        if i.opcode in COLLECTIVES and i not in late:
            found = _behind(i, body, users, tested)
            if found is not None:
                late |= found[0]
                ends |= found[1]
    if not late:
        return None
    held = dict.fromkeys(
        o for i in body if i in late for o in i.operands if o not in late and not _at_hand(o, body, ends)
    )
    return _Tail(frozenset(late), frozenset(ends), tuple(held))


def _behind(
    first: Instruction, body: Computation, users: Mapping[Instruction, Sequence[Instruction]], tested: set[int]
) -> tuple[set[Instruction], set[int]] | None:
    """A collective with all that follows it, and the elements it ends in; None where the iteration needs some of it."""
    late, ends, work = {first}, set(), [first]
    while work:
        x = work.pop()
        for u in users[x]:
            if u is body.root:
                ends |= {k for k, o in enumerate(u.operands) if o is x}
            elif u not in late:
                if u.opcode not in COLLECTIVES and not cheap(u):
                    return None
                late.add(u)
                work.append(u)
    if not ends or ends & tested:
        return None
    readers = (u for i in body if carried_element(i, body) in ends for u in users[i])
    return (late, ends) if all(u in late for u in readers) else None


def _at_hand(x: Instruction, body: Computation, ends: set[int]) -> bool:
    """Constants, what the tail itself carries, and elements that stay the same need not be held."""
    k = carried_element(x, body)
    return x.opcode == "constant" or (
        k is not None and (k in ends or carried_element(body.root.operands[k], body) == k)
    )


def _rotate(carry: Carry, count: LoopCounter, tail: _Tail) -> list[Instruction]:
    """The first iteration without its tail; the loop, in which the tail of one iteration goes with the rest of the
    next; the last tail."""
    body, size = carry.body, len(carry.initial)
    heads: dict[Instruction, Instruction] = {}
    rest = [k for k in range(size) if k not in tail.elements]
    ahead = dict(
        zip(rest, copy_instructions((body.root.operands[k] for k in rest), body, carry.initial, heads), strict=True)
    )
    start = [ahead.get(k, x) for k, x in enumerate(carry.initial)]
    start[count.index] = _later(carry.initial[count.index], count)
    held = copy_instructions(tail.held, body, carry.initial, heads)
    shape = tuple_shape(*(x.shape.plain for x in body.root.operands), *(i.shape.plain for i in tail.held))
    place = {i: size + n for n, i in enumerate(tail.held)}
    parameter = body.parameters[0].replace(shape=shape)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old is not body.root:
            return None
        state = [part_of(parameter, k) for k in range(size)]
        done = {i: part_of(parameter, k) for i, k in place.items()}
        made = dict(
            zip(
                tail.elements,
                copy_instructions((old.operands[k] for k in tail.elements), body, state, done),
                strict=True,
            )
        )
        values = (made.get(k, x) for k, x in enumerate(operands))
        return old.replace(operands=(*values, *(now[i] for i in tail.held)), shape=shape)

    now: dict[Instruction, Instruction] = {}

    def remember(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        made = change(old, operands)
        now[old] = made if made is not None else _keep_operands(old, operands, body, parameter)
        return now[old]

    condition = retype(carry.condition, carry.condition.parameters[0].replace(shape=shape))
    loop = carry.rebuilt([*start, *held], condition, retype(body, parameter, remember))
    state = [part_of(loop, k) for k in range(size)]
    done = {i: part_of(loop, k) for i, k in place.items()}
    last = dict(
        zip(
            tail.elements,
            copy_instructions((body.root.operands[k] for k in tail.elements), body, state, done),
            strict=True,
        )
    )
    return [last.get(k, state[k]) for k in range(size)]


def _keep_operands(
    old: Instruction, operands: tuple[Instruction, ...], body: Computation, parameter: Instruction
) -> Instruction:
    k = carried_element(old, body)
    if k is not None:
        return part_of(parameter, k)
    same = all(a is b for a, b in zip(operands, old.operands, strict=True))
    return old if same else old.replace(operands=operands)


def _later(start: Instruction, count: LoopCounter) -> Instruction:
    """The counter after one iteration, as a constant, so that trips are still known."""
    shape = start.shape.plain
    return Instruction("constant", shape, (), {"literal": Literal.full(shape, count.start + count.step)})
