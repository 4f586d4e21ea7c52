"""Accumulators are reduced once, after their loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.emit.emitter import identity_of
from shardc.partitioner.optimise.loops.carry import Carry, change_loops, part_of, retype
from shardc.partitioner.optimise.reduction import again, kind, reducer

__all__ = ["SinkReductions"]

_NOTE = "reduced once after the loop"


@dataclass(frozen=True, slots=True)
class SinkReductions:
    """``acc = acc + R(x)`` in a loop becomes ``acc = acc + x`` and one ``R`` after it; likewise for max and min.

    An accumulator behind a reduce-scatter becomes as large as what is scattered: that is done while the loop's
    state at most doubles. Floats narrower than 32 bits are left alone, because partial sums would lose more of them.
    """

    name: str = "sink-reductions"
    why: str = "gradients of many steps are reduced once"

    def run(self, module: Module) -> Module:
        return change_loops(module, _sunk)


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """Element ``index``, combined by ``opcode`` along ``path`` with what ``reductions`` give."""

    index: int
    opcode: str
    path: tuple[Instruction, ...]
    reductions: tuple[Instruction, ...]

    @property
    def partial(self) -> Shape:
        """The shape before the reduction."""
        return self.reductions[0].operands[0].shape


def _sunk(carry: Carry, around: Computation) -> Sequence[Instruction] | None:
    users = users_of(carry.body)
    room = carry.body.root.shape.nbytes
    found: list[_Accumulator] = []
    for index in range(len(carry.initial)):
        a = _accumulator(carry, index, users)
        growth = 0 if a is None else a.partial.nbytes - carry.initial[index].shape.nbytes
        if a is not None and growth <= room:
            room -= growth
            found.append(a)
    return _without(carry, found) if found else None


def _accumulator(carry: Carry, index: int, users: dict[Instruction, list[Instruction]]) -> _Accumulator | None:
    body, root = carry.body, carry.body.root.operands[index]
    opcode = root.opcode
    if opcode not in ("add", "maximum", "minimum") or not _wide(root):
        return None
    readers = [i for i in body if carried_element(i, body) == index]
    if len(readers) != 1 or any(carried_element(i, carry.condition) == index for i in carry.condition):
        return None
    path: list[Instruction] = []
    terms: list[Instruction] = []
    work = [root]
    while work:
        x = work.pop()
        if len(users[x]) != 1:
            return None
        if x.opcode == opcode:
            path.append(x)
            work.extend(x.operands)
        elif x is not readers[0]:
            terms.append(x)
    same = len({kind(t) if reducer(t) == opcode else None for t in terms}) == 1
    own = sum(readers[0] in x.operands for x in path) == 1
    if not terms or not same or not own or reducer(terms[0]) != opcode:
        return None
    return _Accumulator(index, opcode, tuple(path), tuple(terms))


def _wide(x: Instruction) -> bool:
    dtype = x.shape.dtype
    return not (dtype.is_float and dtype.bits < 32)


def _without(carry: Carry, found: list[_Accumulator]) -> list[Instruction]:
    """The loop without those reductions, and its elements with them behind it."""
    by_index = {a.index: a for a in found}
    dropped = {r for a in found for r in a.reductions}
    wider = {x: a.partial for a in found for x in a.path}
    shape = tuple_shape(
        *(by_index[k].partial if k in by_index else x.shape for k, x in enumerate(carry.body.root.operands))
    )

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in dropped:
            return operands[0]
        if old in wider:
            return old.replace(operands=operands, shape=wider[old])
        if old is carry.body.root:
            return old.replace(operands=operands, shape=shape)
        return None

    start = [_identity(x, by_index[k]) if k in by_index else x for k, x in enumerate(carry.initial)]
    condition = retype(carry.condition, carry.condition.parameters[0].replace(shape=shape))
    body = retype(carry.body, carry.body.parameters[0].replace(shape=shape), change)
    loop = carry.rebuilt(start, condition, body)
    values = [part_of(loop, k) for k in range(len(start))]
    for a in found:
        whole = again(a.reductions[0], values[a.index], _NOTE)
        first = carry.initial[a.index]
        zero = a.opcode == "add" and _splat(first) == 0
        values[a.index] = whole if zero else a.path[-1].replace(operands=(first, whole), name=a.opcode)
    return values


def _identity(initial: Instruction, a: _Accumulator) -> Instruction:
    """The loop starts from nothing; what it started from is combined after it."""
    scalar_shape = array_shape(initial.shape.dtype)
    literal = Literal.full(scalar_shape, identity_of(a.opcode, initial.shape.dtype))
    scalar = Instruction("constant", scalar_shape, (), {"literal": literal})
    if not a.partial.dims:
        return scalar
    return Instruction("broadcast", a.partial.plain, (scalar,), {"dimensions": ()}, metadata=initial.metadata)


def _splat(x: Instruction) -> object:
    """The one value of a constant, or of a broadcast one; NaN for anything else."""
    while x.opcode in ("broadcast", "reshape", "copy"):
        x = x.operands[0]
    value = x.attrs["literal"].splat if x.opcode == "constant" else None
    return math.nan if value is None else value
