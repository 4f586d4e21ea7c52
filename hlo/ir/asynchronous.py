"""Asynchronous pairs: what is started in one place and awaited in another, and back to one operation.

That are collectives and moves between host and device. All-reduce, all-gather and collective-permute have starts and
dones of their own, as XLA spells them; anything else is wrapped: ``async-start`` calls a computation that holds it
alone, ``async-done`` awaits that.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.hlo.ir.host_memory.host_moves import is_host_move
from shardc.hlo.ir.host_memory.memory_kinds import placed_in
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.types import Shape, tuple_shape

__all__ = ["is_done", "is_start", "join_pair", "mark_pair", "split", "synchronous_name", "was_asynchronous"]

#: A frontend attribute of collectives that were pairs and shall become pairs again.
_MARK = ("_shardc_asynchronous", "true")

#: Starts with an opcode of their own, by what they start.
_STARTS: Mapping[str, str] = MappingProxyType(
    {o: f"{o}-start" for o in ("all-reduce", "all-gather", "collective-permute")}
)
_STARTED = MappingProxyType({start: opcode for opcode, start in _STARTS.items()})
_DONES = frozenset(f"{o}-done" for o in _STARTS)


def is_start(i: Instruction) -> bool:
    """Whether ``i`` begins a collective, or a move between host and device, that a done awaits."""
    if i.opcode != "async-start":
        return i.opcode in _STARTED
    return _wrapped(i) is not None


def is_done(i: Instruction) -> bool:
    """Whether ``i`` awaits a collective or a move."""
    return i.opcode in _DONES or (i.opcode == "async-done" and bool(i.operands) and is_start(_first(i)))


def join_pair(start: Instruction, operands: tuple[Instruction, ...] | None = None) -> Instruction:
    """What ``start`` begins, as one operation (on other ``operands``, if given)."""
    operands = start.operands if operands is None else operands
    name = synchronous_name(start.name)
    inner = _wrapped(start) if start.opcode == "async-start" else None
    if inner is not None:
        metadata, origin = inner.metadata or start.metadata, inner.origin or start.origin
        return inner.replace(operands=operands, name=name, metadata=metadata, origin=origin)
    shape = start.shape
    if start.opcode != "all-reduce-start":
        shape = shape.elements[1]  # (operands, results, contexts...)
    return start.replace(opcode=_STARTED[start.opcode], shape=shape.plain, operands=operands, name=name)


def mark_pair(i: Instruction) -> Instruction:
    """The collective ``i``, remembering that it was a pair."""
    kept = tuple(i.attrs.get("frontend_attributes", ()))
    return i.replace(attrs=MappingProxyType({**i.attrs, "frontend_attributes": (*kept, _MARK)}))


def was_asynchronous(i: Instruction) -> bool:
    """Whether the collective ``i`` was a pair of a start and a done."""
    return _MARK in i.attrs.get("frontend_attributes", ())


def split(i: Instruction) -> tuple[Instruction, Instruction]:
    """Start and done of the collective or move ``i``; the done has its value.

    Example: of ``%g = f32[8] all-gather(x)`` they are ``%g.start = (f32[2], f32[8]) all-gather-start(x)`` and
    ``%g = f32[8] all-gather-done(%g.start)``.
    """
    plain = i.shape.plain
    opcode, attrs, shape = _STARTS.get(i.opcode, "async-start"), i.attrs, plain
    if opcode == "async-start":
        attrs = MappingProxyType({"calls": _wrapper(i)})
        shape = tuple_shape(tuple_shape(*(_in_its_memory(o.shape) for o in i.operands)), _in_its_memory(i.shape))
    elif opcode != "all-reduce-start":
        shape = tuple_shape(_of_operands(i), plain)
    start = i.replace(opcode=opcode, shape=shape, attrs=attrs, name=f"{i.name}.start", sharding=None)
    done = Instruction(
        opcode.removesuffix("start") + "done", i.shape, (start,), name=i.name,
        sharding=i.sharding, metadata=i.metadata, origin=i.origin,
    )  # fmt: skip
    return start, done


def synchronous_name(name: str) -> str:
    """The name of the collective whose start (or done) is called ``name``."""
    return name.removesuffix(".start")


def _of_operands(i: Instruction) -> Shape:
    shapes = [o.shape.plain for o in i.operands]
    return shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)


def _wrapper(i: Instruction) -> Computation:
    parameters = [
        Instruction("parameter", _in_its_memory(o.shape), (), MappingProxyType({"index": n}), name=f"{i.name}.p{n}")
        for n, o in enumerate(i.operands)
    ]
    inner = i.replace(operands=tuple(parameters), name=f"{i.name}.inner", sharding=None)
    return Computation(f"{i.name}.wrapped", (*parameters, inner), inner)


def _in_its_memory(shape: Shape) -> Shape:
    """A shape without its layout, but in its memory."""
    return shape if shape.layout is None else placed_in(shape.plain, shape)


def _wrapped(start: Instruction) -> Instruction | None:
    """The only instruction but parameters in what an ``async-start`` calls, if it is a collective or a move of all of
    them."""
    called: Computation | None = start.attrs.get("calls")
    if called is None:
        return None
    root = called.root
    alone = len(called.instructions) == len(called.parameters) + 1
    known = alone and (root.opcode in COLLECTIVES or is_host_move(root))
    return root if known and root.operands == called.parameters else None


def _first(done: Instruction) -> Instruction:
    """The start behind a done, through updates."""
    i = done.operands[0]
    while i.opcode == "async-update":
        i = i.operands[0]
    return i
