"""Counts equal values that do not depend on each other. If they are moved alike, their collectives are combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.opset import OPS
from shardc.partitioner.regions.region_graph import Wire

__all__ = ["count_joined_moves"]

#: A value is compared with the last groups of its like only.
_GROUPS = 8


def count_joined_moves(module: Module, wires: Sequence[Wire]) -> Mapping[Wire, int]:
    """For each result of an operation, the number of values in its computation that will be moved in the same way,
    itself included. None of them depends on another. Values are alike if they have the same dimensions and their
    readers are the same operations."""
    kinds: dict[object, list[tuple[Instruction, Wire]]] = {}
    for w in wires:
        if w.producer is not None and w.producer.strategies and not w.made:
            readers = frozenset((r.node.op.opcode, r.slot) for r in w.readers if r.node is not None)
            key = (w.dims, w.nbytes, w.times, OPS[w.producer.op.opcode].family == "contraction", readers)
            kinds.setdefault(key, []).append((w.producer.op, w))
    several = [members for members in kinds.values() if len(members) > 1]
    behind = _find_behind(module, frozenset(op for members in several for op, _ in members))
    counts: dict[Wire, int] = {}
    for members in several:
        groups: list[_Group] = []
        for op, w in members:
            if op in behind:  # rules may have rewritten it
                place, bit, reached = behind[op]
                near = groups[-_GROUPS:]
                group = next((g for g in near if g.place is place and not g.bits & reached), None)
                if group is None:
                    groups.append(group := _Group(place))
                group.bits |= bit
                group.wires.append(w)
        counts.update((w, len(g.wires)) for g in groups for w in g.wires)
    return counts


@dataclass(slots=True)
class _Group:
    """Values made in the computation ``place``; ``bits`` are those of their operations."""

    place: Computation
    bits: int = 0
    wires: list[Wire] = field(default_factory=list)


def _find_behind(module: Module, made: Set[Instruction]) -> Mapping[Instruction, tuple[Computation, int, int]]:
    """For each instruction in ``made``: its computation, its bit, and the bits of the instructions that it depends
    on."""
    found: dict[Instruction, tuple[Computation, int, int]] = {}
    for c in module.computations:
        if not any(i in made for i in c):
            continue
        reached: dict[Instruction, int] = {}
        for i in c:
            bits = 0
            for o in i.operands:
                bits |= reached[o]
            if i in made:
                bit = 1 << len(found)
                found[i] = (c, bit, bits)
                bits |= bit
            reached[i] = bits
    return found
