"""Compute early: part of a late kernel moves to where its operands are made, if its result is smaller than they are.

Fusing makes one kernel of all arithmetic before a value, so that everything it reads stays alive until then. At the
peak that costs: a backward pass that asks only for the sign of an activation keeps all of it, and a long sum keeps
every term. So where memory is fullest, later kernels are searched for a value that is known before and takes less
memory than what only it still needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shardc.compiler.lower.buffers.assign_buffers import Peak
from shardc.compiler.lower.fuse.fusion_rules import is_pointwise
from shardc.compiler.lower.schedule.order_for_memory import Judged, OrderForMemory, loop_bodies
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations

__all__ = ["ComputeEarly"]


@dataclass(frozen=True, slots=True)
class ComputeEarly:
    """Split kernels where that lowers the peak by ``least`` of it; in turns, because then another place is fullest.

    Computations with more than ``limit`` instructions stay as they are.
    """

    name: str = "compute-early"
    why: str = "where memory is fullest, the small results of large values are kept in their place"
    turns: int = 8
    least: float = 0.01
    limit: int = 20_000

    def run(self, module: Module) -> Module:
        bodies = loop_bodies(module)
        return map_computations(module, lambda c: self._split(c, c.name in bodies), only=step_computations(module))

    def _split(self, computation: Computation, carried: bool) -> Computation:
        if len(computation.instructions) > self.limit:
            return computation
        order = OrderForMemory(limit=self.limit)
        best = Judged.of(computation, carried=carried)
        for _ in range(self.turns):
            split = _without_peak(best.computation, best.peak)
            if split is None:
                break
            other = order.reorder(Judged.of(split, carried=carried))
            if other.peak.nbytes > best.peak.nbytes * (1 - self.least):
                break
            best = other
        return best.computation


def _without_peak(computation: Computation, highest: Peak) -> Computation | None:
    """All splits that free memory at the present peak, made; None when there are none."""
    fullest = highest.step
    if fullest is None:
        return None
    position = {i: n for n, i in enumerate(computation)}
    peak = position.get(fullest.instruction, len(position)) if hasattr(fullest, "instruction") else len(position)
    users = users_of(computation)
    early: dict[Instruction, list[_EarlyPart]] = {}
    for fusion in computation.instructions[peak:]:
        if fusion.opcode == "fusion":
            parts = _parts(fusion, position, peak, users)
            if parts:
                early[fusion] = parts
    return _rebuilt(computation, early, position) if early else None


@dataclass(frozen=True, slots=True)
class _EarlyPart:
    """An instruction inside a fusion, and all that it is computed from there."""

    value: Instruction
    cone: frozenset[Instruction]
    gain: int


def _parts(
    fusion: Instruction,
    position: Mapping[Instruction, int],
    peak: int,
    users: Mapping[Instruction, Sequence[Instruction]],
) -> list[_EarlyPart]:
    """Values inside ``fusion`` to be computed before the peak, the best first, none of them part of another."""
    inner: Computation = fusion.attrs["calls"]
    outside = {p: fusion.operands[p.attrs["index"]] for p in inner.parameters}
    late = {p for p, o in outside.items() if position[o] >= peak}
    kept = {
        p
        for p, o in outside.items()
        if o.opcode in ("parameter", "constant", "get-tuple-element")
        or any(position[u] >= peak and u is not fusion for u in users[o])
        or fusion.operands.count(o) > 1
    }
    if len(late | kept) == len(outside):
        return []
    inside = users_of(inner)
    cones: dict[Instruction, frozenset[Instruction]] = {}
    found: list[_EarlyPart] = []
    for i in inner:
        cones[i] = cone = frozenset((i,)).union(*(cones[o] for o in i.operands))
        if i.opcode in ("parameter", "constant") or i is inner.root or not i.shape.is_array or cone & late:
            continue
        if any(not is_pointwise(x) and any(u not in cone for u in inside[x]) for x in cone if x is not i):
            continue  # the kernel would need it as well
        freed = [p for p in cone if p in outside and p not in kept and all(u in cone for u in inside[p])]
        gain = sum(p.shape.nbytes for p in freed) - i.shape.nbytes
        if gain > 0:
            found.append(_EarlyPart(i, cone, gain))
    number = {i: n for n, i in enumerate(inner)}
    chosen: list[_EarlyPart] = []
    for part in sorted(found, key=lambda p: (-p.gain, number[p.value])):
        if not any(part.value in c.cone or c.value in part.cone for c in chosen):
            chosen.append(part)
    return chosen


def _rebuilt(
    computation: Computation, early: Mapping[Instruction, Sequence[_EarlyPart]], position: Mapping[Instruction, int]
) -> Computation:
    """The computation with parts of kernels as kernels of their own, right behind what they read."""
    after: dict[Instruction, list[tuple[Instruction, _EarlyPart]]] = {}
    for fusion, parts in early.items():
        for part in parts:
            sources = [fusion.operands[p.attrs["index"]] for p in part.cone if p.opcode == "parameter"]
            after.setdefault(max(sources, key=position.__getitem__), []).append((fusion, part))
    new: dict[Instruction, Instruction] = {}
    made: dict[tuple[Instruction, Instruction], Instruction] = {}
    body: list[Instruction] = []
    for old in computation:
        if old in early:
            values = {part.value: made[old, part.value] for part in early[old]}
            new[old] = _kernel(old, old.attrs["calls"].root, new, values)
        elif any(new[o] is not o for o in old.operands):
            new[old] = old.replace(operands=tuple(new[o] for o in old.operands))
        else:
            new[old] = old
        body.append(new[old])
        for fusion, part in after.get(old, ()):
            made[fusion, part.value] = kernel = _kernel(fusion, part.value, new, {})
            body.append(kernel)
    return Computation(computation.name, body, new[computation.root])


def _kernel(
    fusion: Instruction,
    root: Instruction,
    new: Mapping[Instruction, Instruction],
    made: Mapping[Instruction, Instruction],
) -> Instruction:
    """The kernel that computes ``root`` of inside ``fusion``, from its operands and from values that are ``made``."""
    inner: Computation = fusion.attrs["calls"]
    needed = {root}
    for i in reversed(inner.instructions):
        if i in needed and i not in made:
            needed.update(i.operands)
    clones: dict[Instruction, Instruction] = {}
    body: list[Instruction] = []
    outside: list[Instruction] = []
    for i in inner:
        if i not in needed:
            continue
        if i.opcode == "parameter" or i in made:
            attrs = MappingProxyType({"index": len(outside)})
            clones[i] = Instruction("parameter", i.shape, (), attrs, name=f"p{len(outside)}")
            outside.append(made[i] if i in made else new[fusion.operands[i.attrs["index"]]])
        else:
            clones[i] = i.replace(operands=tuple(clones[o] for o in i.operands))
        body.append(clones[i])
    whole = root is inner.root
    product = next((i for i in body if i.opcode == "dot"), None)
    if product is not None and product is clones[root]:
        return root.replace(operands=tuple(outside[o.attrs["index"]] for o in product.operands))
    name = fusion.name if whole else f"early_{root.opcode.replace('-', '_')}"
    kind = "kInput" if any(i.opcode == "reduce" for i in body) else "kLoop"
    if product is not None:  # still one of `FuseProducts`, whose parts are products or what is computed from them
        kind = fusion.attrs["kind"]
    return Instruction(
        "fusion",
        root.shape,
        tuple(outside),
        MappingProxyType({"kind": kind, "calls": Computation(name, body, clones[root])}),
        name=name,
        metadata=fusion.metadata if whole else root.metadata,
        origin=fusion.origin if whole else root.origin,
    )
