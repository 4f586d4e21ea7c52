"""Loops as the passes see them: a state that is made, read and returned element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.ir import Computation, Instruction, Module, Rebuilt, rebuild_computation, users_of
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.loops.loop_counter import carried_element

__all__ = ["Carry", "change_loops", "open_loop", "part_of", "retype", "tuple_of"]


@dataclass(frozen=True, slots=True)
class Carry:
    """A ``while`` over a tuple: its initial elements, its condition and its body, already rewritten inside."""

    loop: Instruction
    initial: tuple[Instruction, ...]
    condition: Computation
    body: Computation

    def rebuilt(self, initial: Sequence[Instruction], condition: Computation, body: Computation) -> Instruction:
        """The loop with other parts."""
        attrs = {**self.loop.attrs, "condition": condition, "body": body}
        start = tuple_of(initial, self.loop)
        return self.loop.replace(shape=start.shape, operands=(start,), attrs=attrs)


def open_loop(loop: Instruction, start: Instruction, called: Mapping[Computation, Computation]) -> Carry | None:
    """The loop taken apart; None when its state is handed on as a whole somewhere."""
    condition = called.get(loop.attrs["condition"], loop.attrs["condition"])
    body = called.get(loop.attrs["body"], loop.attrs["body"])
    if start.opcode != "tuple" or body.root.opcode != "tuple":
        return None
    for computation in (condition, body):
        readers = users_of(computation)[computation.parameters[0]]
        if any(r.opcode != "get-tuple-element" for r in readers):
            return None
    return Carry(loop, start.operands, condition, body)


def tuple_of(parts: Sequence[Instruction], like: Instruction) -> Instruction:
    return Instruction("tuple", tuple_shape(*(p.shape for p in parts)), parts, metadata=like.metadata)


def part_of(whole: Instruction, index: int) -> Instruction:
    shape = whole.shape.elements[index]
    return Instruction("get-tuple-element", shape, (whole,), {"index": index}, metadata=whole.metadata)


def retype(
    computation: Computation,
    parameter: Instruction,
    change: Callable[[Instruction, tuple[Instruction, ...]], Instruction | None] = lambda old, operands: None,
) -> Computation:
    """The computation over another tuple parameter, other instructions changed by ``change``."""
    old = computation.parameters[0]

    def swap(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if i is old:
            return parameter
        changed = change(i, operands)
        k = carried_element(i, computation)
        return part_of(parameter, k) if changed is None and k is not None else changed

    return rebuild_computation(computation, swap)


def change_loops(
    module: Module,
    change: Callable[[Carry, Computation], Sequence[Instruction] | None],
    *,
    least: int = 2,
    kept: Set[str] = frozenset(),
) -> Module:
    """Every loop, inner ones first, as ``change(carry, around)`` gives it: one value per element of its state.

    ``around`` is the computation that holds the loop; None keeps a loop. Loops known to run less than ``least`` times
    are kept, and so are those whose names are in ``kept``.
    """
    if not any(i.opcode == "while" for i in module.instructions()):
        return module
    called = Rebuilt()
    for computation in module.computations:
        made: set[Instruction] = set()

        def rebuild(
            old: Instruction,
            operands: tuple[Instruction, ...],
            made: set[Instruction] = made,
            around: Computation = computation,
        ) -> Instruction | None:
            if old.opcode == "get-tuple-element" and operands[0] in made:
                value: Instruction = operands[0].operands[old.attrs["index"]]
                return value.replace(sharding=old.sharding) if old is around.root else value
            if old.opcode != "while" or old.name in kept:
                return None
            trips = trip_count(old)
            carry = open_loop(old, operands[0], called) if trips is None or trips >= least else None
            values = None if carry is None else change(carry, around)
            if values is None:
                return None
            whole = tuple_of(values, old)
            made.add(whole)
            return whole

        called[computation] = rebuild_computation(computation, rebuild, called)
    if not called.moved:
        return module
    entry = called[module.entry]
    return module.with_(computations=reachable_computations(entry), entry=entry)
