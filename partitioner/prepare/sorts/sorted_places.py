"""What passes about sorted places share: which values are such places, and how instructions are exchanged."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.make import effects, is_reshape, scalar_value
from shardc.hlo.ir.reducers import reducer_opcode
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.simplify.rules.comparison import outcome

__all__ = ["is_split", "replaced", "without_bounds", "without_tests"]


def without_bounds(x: Instruction, n: int) -> Instruction:
    """Places from 0 to ``n`` before what changes only others: counts from the end, clamps, types that hold them all."""
    while True:
        if is_reshape(x) or (x.opcode == "convert" and _holds(x, n)):
            x = x.operands[0]
        elif x.opcode == "clamp" and splat(x.operands[0]) == 0 and (splat(x.operands[2]) or 0) >= n - 1:
            x = x.operands[1]
        elif x.opcode == "select" and _is_negative(x.operands[0], x.operands[2]):
            x = x.operands[2]
        else:
            return x


def _holds(x: Instruction, n: int) -> bool:
    dtype = x.shape.dtype
    return dtype.is_integer and n <= 1 << (dtype.bits - 1)


def _is_negative(test: Instruction, x: Instruction) -> bool:
    return (
        test.opcode == "compare"
        and test.attrs["direction"] == "LT"
        and test.operands[0] is x
        and splat(test.operands[1]) == 0
    )


def without_tests(c: Computation) -> Computation:
    """``c`` without selects whose predicate is known: tests whether sorted places are within bounds."""
    while True:
        known = {i: _known(i.operands[0]) for i in c if i.opcode == "select"}
        chosen = {i: i.operands[1 if found[0] else 2] for i, found in known.items() if found}
        if not chosen:
            return c
        c = replaced(c, chosen)  # a select that is gone may make a later test known


def _known(test: Instruction) -> tuple[bool, ...]:
    """The one value that a predicate always has; empty where that depends."""
    value = scalar_value(test)
    if value is not None:
        return (bool(value),)
    if test.opcode == "compare":
        found = outcome(test)
        return () if found is None else (found,)
    if test.opcode in ("broadcast", "reshape"):
        return _known(test.operands[0])
    folded = test.opcode == "reduce" and test.shape.is_array and reducer_opcode(test.attrs["to_apply"]) == "and"
    if test.opcode == "and" or folded:
        return (True,) if all(_known(o) == (True,) for o in test.operands) else ()
    return ()


def splat(x: Instruction) -> int | None:
    """The integer that all elements are."""
    found = scalar_value(x) if x.shape.dtype.is_integer else None
    return None if found is None else int(found)


def is_split(x: Instruction) -> bool:
    s = x.sharding
    return x.shape.rank > 0 and isinstance(s, Sharding) and not s.unreduced and s.dims[0].extent(s.mesh) > 1


def replaced(c: Computation, new: Mapping[Instruction, Instruction]) -> Computation:
    """``c`` with other instructions in place of some, which may need what came behind these."""
    made: dict[Instruction, Instruction] = {}
    ends = [*effects(c), c.root]
    stack = ends[::-1]
    while stack:
        i = stack[-1]
        to = new.get(i)
        needs = (to,) if to is not None else i.operands
        missing = [o for o in needs if o not in made]
        if i in made or missing:
            stack = stack[:-1] if i in made else [*stack, *missing]
            continue
        if to is not None:
            made[i] = made[to]
        else:
            operands = tuple(made[o] for o in i.operands)
            same = all(a is b for a, b in zip(operands, i.operands, strict=True))
            made[i] = i if same else i.replace(operands=operands)
        stack.pop()
    return Computation(c.name, topological([*c.parameters, *(made[i] for i in ends)]), made[c.root])
