"""A constant expression gets a copy per use, before propagation: values that have nothing to do with each other would
meet in it. `shardc.sharding.propagation.finish` joins the copies that came out equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, map_callees
from shardc.hlo.ir.opset import OPS
from shardc.sharding.prepare.split_calls import Copies

__all__ = ["SplitConstants", "split_constants"]

_CONSTANT_SHAPE_OPS = frozenset(("broadcast", "reshape", "slice"))


@dataclass(frozen=True, slots=True)
class SplitConstants:
    """`split_constants` as a pass, without a record of what is a copy of what."""

    name: str = "split-constants"
    why: str = "values that share only a constant may have different layouts"

    def run(self, module: Module) -> Module:
        copies: Copies = {}
        after = split_constants(module, copies)
        return after if copies else module


def split_constants(module: Module, copies: Copies) -> Module:
    """Give every use of a constant expression (or of a broadcast scalar) its own copy; scalars stay shared."""
    called: dict[Computation, Computation] = {}
    for c in module.computations:
        called[c] = _split_computation(c, called, copies)
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])


def _split_computation(c: Computation, called: Mapping[Computation, Computation], copies: Copies) -> Computation:
    constant = _constant_expressions(c)
    split = constant | {i for i in c if i.opcode == "broadcast" and not i.operands[0].shape.rank}
    taken: set[Instruction] = set()
    new: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    changed = False

    def private(i: Instruction) -> Instruction:
        """The expression for one use: the original for the first, then copies."""
        if i not in split or not i.shape.rank:
            return new[i]
        operands = tuple(private(o) if i in constant else new[o] for o in i.operands)
        if i not in taken and all(a is b for a, b in zip(operands, i.operands, strict=True)):
            taken.add(i)
            order.append(i)
            return i
        nonlocal changed
        changed = True
        taken.add(i)
        copy = i.replace(operands=operands)
        copies[copy] = copies.get(i, i)
        order.append(copy)
        return copy

    for i in c:
        if i in split and i.shape.rank and i is not c.root:
            continue
        operands = tuple(private(o) for o in i.operands)
        attrs = map_callees(i.attrs, lambda k: called.get(k, k))
        if attrs is not i.attrs or any(a is not b for a, b in zip(operands, i.operands, strict=True)):
            copy = i.replace(operands=operands, attrs=attrs)
            copies[copy] = copies.get(i, i)
            changed = True
        else:
            copy = i
        new[i] = copy
        order.append(copy)
    if not changed:
        return c
    out = Computation(c.name, order, new[c.root])
    copies[out] = copies.get(c, c)
    return out


def _constant_expressions(c: Computation) -> set[Instruction]:
    """Constants, iotas, and what data movement and elementwise ops make of them alone."""
    out: set[Instruction] = set()
    for i in c:
        keeps = i.opcode in _CONSTANT_SHAPE_OPS or (OPS[i.opcode].family == "elementwise" and i.opcode != "map")
        if i.opcode in ("constant", "iota") or (keeps and i.operands and all(o in out for o in i.operands)):
            out.add(i)
    return out
