"""Fuse products: a matrix product and the elementwise arithmetic on its result are one kernel.

The kernel computes the product tile by tile and applies the arithmetic while a tile is in the cache, so that the
product itself need not be written and read again: bias, activation, residual, scaling, a parameter's update.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from shardc.compiler.lower.fuse.fusion_rules import is_cheap, is_duplicable, is_elementwise, is_fusable
from shardc.compiler.lower.schedule.delays import Delays
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.simplify.eliminate_dead import live_part
from shardc.native.llvm.blas import SMALL

__all__ = ["FuseProducts", "part_of"]

Users = Mapping[Instruction, Sequence[Instruction]]

#: What a kernel may compute for itself besides elementwise values.
_SOURCES = frozenset({"broadcast", "iota", "constant"})


@dataclass(frozen=True, slots=True)
class FuseProducts:
    """Group dots (``leaders``) with at most ``limit`` instructions that make ``results`` values of the dot's dimensions
    from it. With ``eager`` no product comes to wait for a collective that it could go on beside."""

    name: str = "fuse-products"
    why: str = "operations on a product run while its tile is in the cache"
    limit: int = 64
    results: int = 4
    eager: bool = False
    leaders: frozenset[str] = frozenset({"dot"})

    def run(self, module: Module) -> Module:
        return map_computations(module, self._fused, only=step_computations(module))

    def _fused(self, computation: Computation) -> Computation:
        if not any(map(self._may_lead, computation)):
            return computation
        users = users_of(computation)
        order = self._products_last(computation, users)
        position = {i: n for n, i in enumerate(order)}
        delays = Delays(computation, users) if self.eager else None
        taken: set[Instruction] = set()
        groups: dict[Instruction, _ProductGroup] = {}
        for dot in filter(self._may_lead, order):
            group = _ProductGroup(dot, computation.root, users, position, delays)
            group.grow(taken, self.limit)
            if group.settle(self.results, taken):
                groups[dot] = group
                taken |= group.members
        return _rebuilt(computation, order, groups) if groups else computation

    def _may_lead(self, i: Instruction) -> bool:
        """Products of integers are loops of their own, and so are tiny ones of complex numbers."""
        if i.opcode not in self.leaders or any(0 in s.dims for s in _shapes(i)):
            return False
        dtype = i.shape.dtype
        return dtype.is_float or (dtype.is_complex and instruction_flops(i) // 2 >= SMALL)

    def _products_last(self, computation: Computation, users: Users) -> list[Instruction]:
        """The instructions in an order that takes products as late as it can: what stands before one is there
        already."""
        number = {i: (i.opcode in self.leaders, n) for n, i in enumerate(computation)}
        return _sorted(computation.instructions, users, number)


def _shapes(i: Instruction) -> Iterator[Shape]:
    yield i.shape
    for o in i.operands:
        yield o.shape


def _sorted(
    instructions: Iterable[Instruction], users: Users, rank: Mapping[Instruction, tuple[int, int]]
) -> list[Instruction]:
    """Operands first; of what may come next, that of the lowest rank."""
    missing = {i: len(set(i.operands)) for i in instructions}
    number = {i: n for n, i in enumerate(missing)}
    heap = [(rank[i], n, i) for i, n in number.items() if not i.operands]
    heapq.heapify(heap)
    order = []
    while heap:
        i = heapq.heappop(heap)[-1]
        order.append(i)
        for user in dict.fromkeys(users[i]):
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(heap, (rank[user], number[user], user))
    return order


@dataclass
class _ProductGroup:
    """A kernel in the making: the dot, members that depend on it, sources that it computes for itself.

    All that it reads stands before the dot, and so do the dots of the groups that it reads: there are no cycles.
    """

    dot: Instruction
    root: Instruction
    users: Users
    position: Mapping[Instruction, int]
    delays: Delays | None = None
    members: set[Instruction] = field(default_factory=set)
    sources: set[Instruction] = field(default_factory=set)
    outputs: list[Instruction] = field(default_factory=list)

    def grow(self, taken: Set[Instruction], limit: int) -> None:
        """Take the elementwise instructions that need nothing but the product and what stands before it."""
        self.members.add(self.dot)
        heap: list[int] = []
        waiting: dict[int, Instruction] = {}

        def enqueue(member: Instruction) -> None:
            for user in self.users[member]:
                if self.position[user] not in waiting:
                    waiting[self.position[user]] = user
                    heapq.heappush(heap, self.position[user])

        enqueue(self.dot)
        while heap and len(self.members) < limit:
            user = waiting[heapq.heappop(heap)]
            if user not in taken and self._fits(user):
                self.members.add(user)
                enqueue(user)

    def _fits(self, i: Instruction) -> bool:
        if not is_elementwise(i) or i.shape.dims != self.dot.shape.dims:
            return False
        if self.delays is not None and self.delays.awaits_more(i, self.dot):
            return False
        before = self.position[self.dot]
        return all(o in self.members or self.position[o] < before for o in i.operands)

    def settle(self, most: int, taken: Set[Instruction]) -> bool:
        """Decide which members are results and which others compute again. Returns whether something is gained."""
        needed: set[Instruction] = set()
        for m in sorted(self.members, key=self.position.__getitem__, reverse=True):
            outside = [r for r in self.users[m] if r not in self.members]
            if m is not self.root and not outside and m not in needed:
                continue
            again = m is not self.root and m is not self.dot and is_duplicable(m) and all(map(is_fusable, outside))
            if again:
                needed.update(o for o in m.operands if o in self.members)
            else:
                self.outputs.append(m)
        self.outputs.reverse()
        if self.outputs == [self.dot] or not 0 < len(self.outputs) <= most:
            return False
        self._trim(taken)
        return True

    def _trim(self, taken: Set[Instruction]) -> None:
        """Keep what the results need, and find what the kernel computes for itself (but nothing ``taken``)."""
        kept: set[Instruction] = set()
        work = list(self.outputs)
        while work:
            i = work.pop()
            if i in kept:
                continue
            kept.add(i)
            if i is self.dot:
                continue
            work.extend(o for o in i.operands if o in self.members or (o not in taken and self._is_ours(o, kept)))
        self.sources = kept - self.members
        self.members &= kept

    def _is_ours(self, o: Instruction, kept: set[Instruction]) -> bool:
        """Whether the kernel should compute this operand, which does not depend on the product."""
        if o in self.dot.operands:  # the kernel reads it in any case
            return False
        if _is_source(o):
            return True
        if not is_elementwise(o) or o.shape.dims != self.dot.shape.dims or not is_cheap(o) or o is self.root:
            return False
        return is_duplicable(o) or all(r in kept for r in self.users[o])

    def reads(self) -> list[Instruction]:
        """The operands of the kernel: the dot's, then the others in order."""
        inside = self.members | self.sources
        others = {o for i in inside if i is not self.dot for o in i.operands if o not in inside}
        return list(dict.fromkeys((*self.dot.operands, *sorted(others, key=self.position.__getitem__))))


def _is_source(o: Instruction) -> bool:
    return o.opcode in _SOURCES and (o.opcode != "constant" or not o.shape.dims)


def _rebuilt(
    computation: Computation, order: Sequence[Instruction], groups: Mapping[Instruction, _ProductGroup]
) -> Computation:
    """The computation with a fusion in the place of each group's dot, otherwise in its order."""
    number = {i: n for n, i in enumerate(computation)}
    new: dict[Instruction, Instruction] = {}
    rank: dict[Instruction, tuple[int, int]] = {}
    results: dict[Instruction, Instruction] = {}

    def add(i: Instruction, at: Instruction, part: int = 0) -> Instruction:
        rank.setdefault(i, (number[at], part))
        return i

    for old in order:
        group = groups.get(old)
        if group is not None:
            fusion = add(_fusion(group, new), old)
            several = len(group.outputs) > 1
            for n, output in enumerate(group.outputs):
                results[output] = add(part_of(fusion, n, output), old, n + 1) if several else fusion
        if old in results:
            new[old] = results[old]
            continue
        operands = tuple(new[o] for o in old.operands)
        same = all(a is b for a, b in zip(operands, old.operands, strict=True))
        new[old] = add(old if same else old.replace(operands=operands), old)
    everything = Computation(computation.name, rank, new[computation.root])
    alive = live_part(everything)
    return Computation(alive.name, _sorted(alive.instructions, users_of(alive), rank), alive.root)


def part_of(fusion: Instruction, number: int, output: Instruction) -> Instruction:
    """Result ``number`` of a fusion, in the place of ``output``."""
    attrs = MappingProxyType({"index": number})
    return Instruction(
        "get-tuple-element", output.shape, (fusion,), attrs, name=output.name,
        metadata=output.metadata, origin=output.origin,
    )  # fmt: skip


def _fusion(group: _ProductGroup, new: Mapping[Instruction, Instruction]) -> Instruction:
    """The fusion instruction of a group, its computation made of clones."""
    inner: dict[Instruction, Instruction] = {}
    outside = group.reads()
    for number, o in enumerate(outside):
        attrs = MappingProxyType({"index": number})
        inner[o] = Instruction("parameter", o.shape, (), attrs, name=f"p{number}")
    for m in sorted(group.members | group.sources, key=group.position.__getitem__):
        inner[m] = m.replace(operands=tuple(inner[o] for o in m.operands), sharding=None)
    roots = [inner[o] for o in group.outputs]
    root = roots[0]
    if len(roots) > 1:
        root = Instruction("tuple", tuple_shape(*(r.shape for r in roots)), tuple(roots), name="results")
        inner[root] = root
    return Instruction(
        "fusion",
        root.shape,
        tuple(new[o] for o in outside),
        MappingProxyType({"kind": "kOutput", "calls": Computation("fused_dot", inner.values(), root)}),
        name="fused_dot",
        metadata=group.dot.metadata,
        origin=group.dot.origin,
    )
