"""Simplify loops: carry only what changes and is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardc.compiler.lower.fuse.fusion_rules import is_elementwise
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
    topological,
    users_of,
)
from shardc.hlo.ir.make import effects, keep_reachable, make, scalar_value, with_order
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.simplify.eliminate_dead import live_part

__all__ = ["SimplifyLoops"]


@dataclass(frozen=True, slots=True)
class SimplifyLoops:
    """Dead elements of a loop's tuple are dropped; constant elements that never change move into the body, and with
    ``positions`` those that are made from positions alone, such as masks."""

    positions: bool = False
    name: str = "simplify-loops"
    why: str = "a loop carries only what changes and is read"
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        known: dict[Instruction, bool] = {}

        def moves(value: Instruction) -> bool:
            return scalar_value(value) is not None or (self.positions and _is_of_positions(value, known))

        after = rebuild_computations(module, lambda c, called: _loops_of(c, called, moves))
        return keep_reachable(after, after.entry)


def _is_of_positions(value: Instruction, known: dict[Instruction, bool]) -> bool:
    """Whether the value is computed from indices and scalar constants, elementwise."""
    found = known.get(value)
    if found is None:
        own = value.opcode in ("iota", "broadcast", "reshape", "transpose", "slice") or is_elementwise(value)
        found = value.opcode == "constant" and not value.shape.dims
        found = found or (own and all(_is_of_positions(o, known) for o in value.operands))
        known[value] = found
    return found


def _loops_of(
    computation: Computation, called: Mapping[Computation, Computation], moves: Callable[[Instruction], bool]
) -> Computation:
    if not any(i.opcode == "while" for i in computation):
        return rebuild_computation(computation, None, called)
    users = users_of(computation)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode != "while":
            return None
        condition, body = called[old.attrs["condition"]], called[old.attrs["body"]]
        outside = users[old]
        if computation.root is old or any(u.opcode != "get-tuple-element" for u in outside):
            read = None
        else:
            read = {int(u.attrs["index"]) for u in outside}
        return _simplified(old, operands[0], condition, body, read, moves)

    return live_part(rebuild_computation(computation, change, called))


def _simplified(
    loop: Instruction,
    init: Instruction,
    condition: Computation,
    body: Computation,
    read: set[int] | None,
    moves: Callable[[Instruction], bool],
) -> Instruction | None:
    """The loop with fewer carried elements, None if all are needed; ``read`` are those used after it, None for all."""
    if init.opcode != "tuple" or body.root.opcode != "tuple" or not (_taken_apart(condition) and _taken_apart(body)):
        return None
    constants = _constant_elements(init, body, moves)
    needed = _needed(body, condition, read if read is not None else set(range(len(init.operands))), constants)
    kept = sorted(needed)
    if len(kept) == len(init.operands) or (not kept and has_side_effect(loop)):
        return None
    shape = tuple_shape(*(init.operands[k].shape for k in kept))
    new_condition = _narrowed(condition, shape, kept, constants, condition.root)
    root = make("tuple", shape, [body.root.operands[k] for k in kept], body.root)
    new_body = _narrowed(body, shape, kept, constants, root)
    smaller = loop.replace(
        shape=shape,
        operands=(make("tuple", shape, [init.operands[k] for k in kept], init),),
        attrs={"condition": new_condition, "body": new_body, **_other(loop)},
    )
    return _widened(smaller, loop, init, kept, constants)


def _other(loop: Instruction) -> dict[str, object]:
    return {k: v for k, v in loop.attrs.items() if k not in ("condition", "body")}


def _taken_apart(computation: Computation) -> bool:
    """Whether the tuple parameter is only read element by element."""
    parameter = computation.parameters[0]
    users = users_of(computation)[parameter]
    return computation.root is not parameter and all(u.opcode == "get-tuple-element" for u in users)


def _element(instruction: Instruction, parameter: Instruction) -> int | None:
    if instruction.opcode == "get-tuple-element" and instruction.operands[0] is parameter:
        return int(instruction.attrs["index"])
    return None


def _constant_elements(
    init: Instruction, body: Computation, moves: Callable[[Instruction], bool]
) -> dict[int, Instruction]:
    """Elements that start as a scalar constant (or a splat of one, or what else ``moves``) and never change."""
    parameter = body.parameters[0]
    return {
        k: value
        for k, value in enumerate(init.operands)
        if moves(value) and _element(body.root.operands[k], parameter) == k
    }


def _needed(body: Computation, condition: Computation, read: set[int], constants: dict[int, Instruction]) -> set[int]:
    """Elements that results, side effects or the condition depend on, through any number of iterations."""
    checked = _reads(body, effects(body))
    work = list(read | checked | _reads(condition, [condition.root, *effects(condition)]))
    needed: set[int] = set()
    while work:
        k = work.pop()
        if k in needed or k in constants:
            continue
        needed.add(k)
        work.extend(_reads(body, [body.root.operands[k]]) - needed)
    return needed


def _reads(computation: Computation, roots: Sequence[Instruction]) -> set[int]:
    """Elements of the parameter that ``roots`` are computed from."""
    parameter = computation.parameters[0]
    found: set[int] = set()
    seen: set[Instruction] = set()
    work = list(roots)
    while work:
        i = work.pop()
        if i in seen:
            continue
        seen.add(i)
        element = _element(i, parameter)
        if element is not None:
            found.add(element)
        else:
            work.extend(i.operands)
    return found


def _narrowed(
    computation: Computation, shape: Shape, kept: Sequence[int], constants: dict[int, Instruction], root: Instruction
) -> Computation:
    """The computation over the smaller tuple; constant elements are spelled out."""
    old = computation.parameters[0]
    parameter = old.replace(shape=shape)
    place = {k: n for n, k in enumerate(kept)}

    def change(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if i is old:
            return parameter
        k = _element(i, old)
        if k is None:
            return None
        if k in place:
            return make("get-tuple-element", i.shape, (parameter,), i, index=place[k])
        return None if k not in constants else copied(constants[k])

    def copied(value: Instruction) -> Instruction:
        for i in topological([value]):
            if i not in copies:
                copies[i] = i.replace(operands=tuple(copies[o] for o in i.operands))
        return copies[value]

    copies: dict[Instruction, Instruction] = {}
    needed = with_order(computation, root, effects(computation))
    return live_part(rebuild_computation(needed, change))


def _widened(
    smaller: Instruction, loop: Instruction, init: Instruction, kept: Sequence[int], constants: dict[int, Instruction]
) -> Instruction:
    """The old tuple put together from the smaller loop's; elements that nobody reads are their initial value."""
    place = {k: n for n, k in enumerate(kept)}
    parts = [
        make("get-tuple-element", o.shape, (smaller,), loop, index=place[k]) if k in place else constants.get(k, o)
        for k, o in enumerate(init.operands)
    ]
    return make("tuple", loop.shape.plain, parts, loop)
