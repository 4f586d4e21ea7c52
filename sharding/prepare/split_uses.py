"""Uses split from one another before propagation, so that unrelated values do not meet.

A computation that is called from several places gets a copy per place, and a constant expression a copy per use: each
may then be laid out as its own surroundings want. `shardc.sharding.propagation.finish` joins the copies that came out
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees
from shardc.hlo.ir.opset import OPS

__all__ = ["Copies", "split_calls", "split_constants"]

#: Copy to original, for instructions and computations.
Copies = dict[Any, Any]

_CONSTANT_SHAPE_OPS = frozenset(("broadcast", "reshape", "slice"))


def split_calls(module: Module, copies: Copies, others: Sequence[Computation] = ()) -> Module:
    """Give every call site of a computation its own copy, callees of callees included; ``others`` are functions
    besides the entry, the last of which goes first."""
    seen: set[Computation] = set()
    made: list[Computation] = []

    def own(c: Computation) -> Computation:
        """``c`` itself at its first call site, else a copy; either with callees of its own."""
        again = c in seen
        seen.add(c)
        changed = _map(c, own, force=again)
        if changed is not c:
            copies[changed] = copies.get(c, c)
            for old, new in zip(c, changed, strict=True):
                copies[new] = copies.get(old, old)
        made.append(changed)
        return changed

    public = [own(c) for c in reversed(others)][::-1]
    entry = own(module.entry)
    made = [*(c for c in made if c not in public), *public]
    flow = set(made) | seen
    rest = [c for c in module.computations if c not in flow]
    return module.with_(computations=(*rest, *made), entry=entry)


def _map(c: Computation, own: Any, *, force: bool) -> Computation:
    new: dict[Instruction, Instruction] = {}
    changed = False
    for i in c:
        operands = tuple(new[o] for o in i.operands)
        attrs = map_callees(i.attrs, own) if flow_computations(i) else i.attrs
        if force or attrs is not i.attrs or any(a is not b for a, b in zip(operands, i.operands, strict=True)):
            new[i] = i.replace(operands=operands, attrs=attrs)
            changed = True
        else:
            new[i] = i
    return Computation(c.name, new.values(), new[c.root]) if changed else c


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
