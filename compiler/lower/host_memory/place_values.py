"""Place values: what a program keeps in host memory is typed so, and moves carry it there and back.

A move is a copy, or the part that a dynamic slice reads from the host's array, or that an update writes into it. What
computes with a value of the host's reads a copy on the device. Moves are pairs of a start and a done here, so that no
pass fuses them; `JoinMoves` makes them one operation again. XLA's host offloading works the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from shardc.hlo.ir.asynchronous import split
from shardc.hlo.ir.host_memory.memory_kinds import (
    DEVICE,
    PINNED_HOST,
    has_host_memory,
    is_host,
    memory_kind_of,
    on_device,
    on_host,
    placed_in,
)
from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect, map_callees, topological
from shardc.hlo.ir.make import keep_reachable, make
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.loops.written_whole import is_written_whole
from shardc.hlo.transforms.host_values import HostValues, is_view

__all__ = ["PlaceValues"]

#: Cut a part out of an array, which is all that then crosses the host's link.
_CUTS = ("slice", "dynamic-slice")
_PASSED = ("tuple", "get-tuple-element", "optimization-barrier", "while", "conditional")


@dataclass(frozen=True, slots=True)
class PlaceValues:
    """Give every value a memory, and add the moves between them; nothing where all is in the device's."""

    name: str = "place-values"
    why: str = "values in host memory save device memory, at the cost of transfers"

    def run(self, module: Module) -> Module:
        if not has_host_memory(module):
            return module
        found = HostValues(module)
        wanted = _roots(module, found)
        new: dict[Computation, Computation] = {}
        for c in module.computations:
            new[c] = _ValuePlacer(found, new).of(c, wanted.get(c))
        return keep_reachable(module, new[module.entry])


def _roots(module: Module, found: HostValues) -> dict[Computation, Shape]:
    """The shapes that computations return, where whoever runs them says so."""
    wanted = {module.entry: found.shape(module.entry.root)}
    for i in module.instructions():
        if i.opcode == "while":
            wanted[i.attrs["body"]] = found.shape(i)
        elif i.opcode == "conditional":
            wanted.update(dict.fromkeys(branches_of(i.attrs), found.shape(i)))
    return wanted


def _unfilled_array(ground: Instruction) -> Instruction:
    """An array on the host, in place of ``ground``, with anything in it."""
    return make("custom-call", on_host(ground.shape), (), ground, custom_call_target="AllocateBuffer")


class _ValuePlacer:
    """One computation while it is written again. ``called`` are those that were before it."""

    def __init__(self, found: HostValues, called: dict[Computation, Computation]) -> None:
        self._found = found
        self._called = called
        self._order: list[Instruction] = []
        self._new: dict[Instruction, Instruction] = {}
        self._moved: dict[tuple[Instruction, bool], Instruction] = {}

    def of(self, c: Computation, wanted: Shape | None) -> Computation:
        for old in c:
            self._new[old] = self._rewrite(old, [self._new[o] for o in old.operands])
        root = self._new[c.root]
        root = root if wanted is None else self._in_memory(root, wanted)
        kept = [i for i in self._order if i.opcode == "parameter" or has_side_effect(i)]
        needed = set(topological([*kept, root]))
        same = len(self._order) == len(c.instructions) and all(a is b for a, b in zip(self._order, c, strict=True))
        return c if same else Computation(c.name, [i for i in self._order if i in needed], root)

    def _rewrite(self, old: Instruction, operands: list[Instruction]) -> Instruction:
        shape, kind = self._found.shape(old), memory_kind_of(old)
        if kind is not None:
            return self._move(operands[0], host=kind == PINNED_HOST)
        if old.opcode == "dynamic-update-slice" and is_host(shape):
            return self._write(old, operands, shape)
        if old.opcode in _CUTS and is_host(operands[0].shape):
            moved = old.replace(operands=(operands[0], *map(self._on_device, operands[1:])))
            return self._pair(moved)
        if old.opcode in ("while", "conditional"):
            operands = self._pass_in(old, operands)
        elif old.opcode not in _PASSED and not is_view(old):
            operands = [self._on_device(o) for o in operands]
        return self._add(self._changed(old, tuple(operands), shape))

    def _changed(self, old: Instruction, operands: tuple[Instruction, ...], shape: Shape) -> Instruction:
        attrs = map_callees(old.attrs, lambda c: self._called.get(c, c))
        same = all(a is b for a, b in zip(operands, old.operands, strict=True))
        if same and attrs is old.attrs and shape == old.shape:
            return old
        return old.replace(operands=operands, attrs=attrs, shape=shape)

    def _pass_in(self, old: Instruction, operands: list[Instruction]) -> list[Instruction]:
        """What loops and branches are given, in the memories that their computations expect."""
        if old.opcode == "while":
            return [self._in_memory(self._without_grounds(old, operands[0]), self._found.shape(old))]
        expected = [self._found.shape(c.parameters[0]) for c in branches_of(old.attrs)]
        pairs = zip(operands[1:], expected, strict=True)
        return [self._on_device(operands[0]), *(self._in_memory(o, s) for o, s in pairs)]

    def _without_grounds(self, loop: Instruction, state: Instruction) -> Instruction:
        """What ``loop`` begins with, but arrays on the host that it writes whole are not filled before."""
        if state.opcode != "tuple" or loop.attrs["body"].root.opcode != "tuple":
            return state
        parts = [
            self._add(_unfilled_array(p)) if p.opcode == "broadcast" and is_host(s) and is_written_whole(loop, n) else p
            for n, (p, s) in enumerate(zip(state.operands, self._found.shape(loop).elements, strict=True))
        ]
        if all(a is b for a, b in zip(parts, state.operands, strict=True)):
            return state
        return self._add(make("tuple", tuple_shape(*(p.shape for p in parts)), parts, state))

    def _write(self, old: Instruction, operands: list[Instruction], shape: Shape) -> Instruction:
        """A part of an array of the host's is written from the device, without a copy on the host before."""
        part = self._source(old.operands[1]) if is_host(operands[1].shape) else operands[1]
        whole, places = self._move(operands[0], host=True), map(self._on_device, operands[2:])
        return self._pair(old.replace(operands=(whole, self._on_device(part), *places), shape=shape))

    def _source(self, old: Instruction) -> Instruction:
        """The value of ``old`` before it was moved to the host, where it was only for this."""
        if memory_kind_of(old) == PINNED_HOST:
            return self._new[old.operands[0]]
        if not is_view(old):
            return self._new[old]
        source = self._source(old.operands[0])
        return self._add(old.replace(operands=(source,), shape=placed_in(old.shape, source.shape)))

    # -- moves ------------------------------------------------------------------------------------------------

    def _on_device(self, value: Instruction) -> Instruction:
        return self._in_memory(value, on_device(value.shape))

    def _in_memory(self, value: Instruction, wanted: Shape) -> Instruction:
        """``value``, or its leaves, in the memories of ``wanted``."""
        if list(map(is_host, value.shape.leaves())) == list(map(is_host, wanted.leaves())):
            return value
        if not value.shape.is_tuple:
            return self._move(value, host=is_host(wanted))
        parts = value.operands if value.opcode == "tuple" else tuple(self._elements(value))
        moved = [self._in_memory(p, s) for p, s in zip(parts, wanted.elements, strict=True)]
        return self._add(make("tuple", tuple_shape(*(p.shape for p in moved)), moved, value))

    def _elements(self, value: Instruction) -> list[Instruction]:
        shapes = enumerate(value.shape.elements)
        return [self._add(make("get-tuple-element", s, (value,), value, index=n)) for n, s in shapes]

    def _move(self, value: Instruction, *, host: bool) -> Instruction:
        """An array in the other memory: copied, or, if it is one scalar everywhere, made there."""
        if is_host(value.shape) == host or not value.shape.is_array:
            return value
        key = (value, host)
        if key not in self._moved:
            shape = on_host(value.shape) if host else on_device(value.shape)
            if host and value.opcode == "broadcast" and not value.operands[0].shape.dims:
                move = value.replace(shape=shape)
            else:
                move = make("copy", shape, (value,), value).replace(
                    name=f"{value.name}.{PINNED_HOST if host else DEVICE}", attrs=MappingProxyType({})
                )
            self._moved[key] = self._pair(move)
        return self._moved[key]

    def _pair(self, move: Instruction) -> Instruction:
        start, done = split(move)
        self._order += (start, done)
        return done

    def _add(self, i: Instruction) -> Instruction:
        self._order.append(i)
        return i
