"""Fuse attention: scores that are made from small operands and read by products again never exist in memory.

A product of two batches of thin matrices (queries and keys) has a result much larger than they are. Where all that is
computed from it, elementwise or by reductions of its rows, ends in results that are small again, one kernel can go
through it block by block (Dao et al., "FlashAttention", arXiv:2205.14135; Rabe and Staats, arXiv:2112.05682). This is
a rule about sizes, not about attention: masks, biases that are broadcast, scales, dropout made from counters and any
order of softmax's operations are all elementwise.

A backward pass reads the forward's scores after the forward's result has been used elsewhere. Then the values
belong to two kernels: each computes the scores that it needs again from the small operands and from the statistics of
rows that the first one wrote, which is what flash attention's backward kernel does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from shardc.compiler.lower.fuse.fuse_products import part_of
from shardc.compiler.lower.fuse.fusion_rules import is_elementwise
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.simplify.eliminate_dead import live_part

__all__ = ["FuseAttention"]

Users = Mapping[Instruction, Sequence[Instruction]]

#: What a kernel makes at other indices of its block.
_MOVEMENT = frozenset({"broadcast", "reshape", "transpose", "iota", "slice", "pad", "bitcast", "concatenate"})

#: What JAX calls the part of a name stack that `jax.checkpoint` computes again.
_AGAIN = "rematted_computation"

#: Values that pass through the region of a product: levels count how often they left it and came back.
_MOST_LEVELS = 3


@dataclass(frozen=True, slots=True)
class FuseAttention:
    """Make one kernel of each such region whose product contracts at most ``depth`` elements (what kernels of
    attention hold) and whose scores have at least ``least`` times as many elements as both operands together."""

    name: str = "fuse-attention"
    why: str = "scores computed from small arrays and reduced to small ones stay on the chip"
    depth: int = 512
    least: float = 2.0

    def run(self, module: Module) -> Module:
        return map_computations(module, self._fused, only=step_computations(module))

    def _fused(self, computation: Computation) -> Computation:
        if not any(map(self._makes_scores, computation)):
            return computation
        regions = _Regions(computation)
        for i in computation:
            regions.visit(i, self._makes_scores(i))
        kernels = regions.kernels()
        return _rebuilt(computation, kernels) if kernels else computation

    def _makes_scores(self, i: Instruction) -> bool:
        if i.opcode != "dot" or not i.attrs.get("lhs_batch_dims"):
            return False
        left, right = (o.shape for o in i.operands[:2])
        contracted = 1
        for d in i.attrs.get("lhs_contracting_dims") or ():
            contracted *= left.dims[d]
        return contracted <= self.depth and i.shape.size >= self.least * (left.size + right.size)


@dataclass(slots=True, eq=False)
class _Region:
    """Values of the size of one product's result (``large``), the products that read them (``closing``), and what is
    made of their rows' sums and of these products alone (``small``). ``numbers`` are those of the regions in it."""

    size: int
    numbers: list[int]
    large: set[Instruction] = field(default_factory=set)
    closing: set[Instruction] = field(default_factory=set)
    level: dict[Instruction, int] = field(default_factory=dict)

    def __contains__(self, i: Instruction) -> bool:
        return i in self.level

    def is_small(self, i: Instruction) -> bool:
        return i.shape.size * 2 <= self.size


@dataclass(slots=True, eq=False)
class _AttentionKernel:
    """``members`` in program order, of which ``outputs`` are read outside and some are computed ``again``."""

    region: _Region
    members: list[Instruction]
    outputs: list[Instruction]
    again: set[Instruction]


class _Regions:
    """The regions of a computation, grown in its order.

    A value's level in its region counts how often what it depends on has left the region and come back.
    """

    def __init__(self, computation: Computation) -> None:
        self._root = computation.root
        self._users = users_of(computation)
        self._number = {i: n for n, i in enumerate(computation)}
        self._regions: list[_Region] = []
        self._of: dict[Instruction, _Region] = {}
        #: One bit per region and level: whether the value depends on what left that region below that level.
        self._after: dict[Instruction, int] = {}
        #: Made from positions and scalars alone.
        self._indices: set[Instruction] = set()

    def visit(self, i: Instruction, makes_scores: bool) -> None:
        """Put ``i`` into the region of its operands, if it belongs there."""
        if _is_scalar_constant(i) or (_is_made_inside(i) and all(o in self._indices for o in i.operands)):
            self._indices.add(i)
        region = self._region_of(i, makes_scores)
        after = 0
        for o in i.operands:
            after |= self._after[o]
            left = self._of.get(o)
            if left is not None and left is not region:
                after |= _bit(left.numbers[0], left.level[o] + 1)
        self._after[i] = after
        if region is not None:
            self._of[i] = region
            region.level[i] = 0
            if i.opcode == "dot" and region.is_small(i):
                region.closing.add(i)
            elif not region.is_small(i):
                region.large.add(i)
            self._set_level(i, region)

    def _region_of(self, i: Instruction, makes_scores: bool) -> _Region | None:
        """The region that ``i`` is part of; regions that it joins become one."""
        if not i.shape.is_array:
            return None
        if makes_scores:
            made = _Region(i.shape.size, [len(self._regions)])
            self._regions.append(made)
            return made
        near = dict.fromkeys(self._of[o] for o in i.operands if o in self._of)
        found = [r for r in near if self._goes_on(r, i)]
        for other in found[1:]:
            self._merge(found[0], other)
        return found[0] if found else None

    def _goes_on(self, region: _Region, i: Instruction) -> bool:
        """Whether ``i`` belongs to ``region``, the region of one of its operands."""
        large = [o for o in i.operands if o in region.large]
        if i.opcode in ("dot", "reduce"):
            return bool(large) and region.is_small(i) and (i.opcode == "dot" or i.operands[0] in large)
        if not _is_made_inside(i):
            return False
        return bool(large) or not region.is_small(i) or all(o in region or o in self._indices for o in i.operands)

    def _merge(self, into: _Region, other: _Region) -> None:
        into.size = max(into.size, other.size)
        into.numbers += other.numbers
        into.large |= other.large
        into.closing |= other.closing
        into.level.update(other.level)
        for n in other.numbers:
            self._regions[n] = into
        for i in other.level:
            self._of[i] = into
        for i in sorted(into.level, key=self._number.__getitem__):
            self._set_level(i, into)

    def _set_level(self, i: Instruction, region: _Region) -> None:
        level = max((region.level[o] for o in i.operands if o in region), default=0)
        for n in range(1, _MOST_LEVELS):
            if any(self._after[i] & _bit(number, n) for number in region.numbers):
                level = max(level, n)
        region.level[i] = level

    # -- kernels -------------------------------------------------------------------------------------------------------

    def kernels(self) -> list[_AttentionKernel]:
        """All kernels that pay."""
        return [k for region in dict.fromkeys(self._regions) for k in self._of_region(region)]

    def _of_region(self, region: _Region) -> list[_AttentionKernel]:
        """A kernel per level; none where a large value is needed in memory anyway, or little is saved."""
        levels = sorted(set(region.level.values()))
        if levels[-1] >= _MOST_LEVELS - 1 or any(self._is_read_outside(i, region) for i in region.large):
            return []
        out: list[_AttentionKernel] = []
        wanted = {i for i in region.level if i not in region.large and self._is_read_outside(i, region)}
        for level in reversed(levels):
            outputs = sorted((i for i in wanted if region.level[i] == level), key=self._number.__getitem__)
            members = self._needed(outputs, region, level)
            again = {i for i in members if i in region and region.level[i] < level}
            kernel = _AttentionKernel(region, members, outputs, again)
            if not self._saves(kernel):
                return []
            out.append(kernel)
            wanted.update(o for o in _reads(kernel) if o in region)
        return out

    def _is_read_outside(self, i: Instruction, region: _Region) -> bool:
        return i is self._root or any(u not in region for u in self._users[i])

    def _needed(self, outputs: Iterable[Instruction], region: _Region, level: int) -> list[Instruction]:
        """What the kernel of ``level`` computes for its outputs: all large values, small ones of its own."""
        found: set[Instruction] = set()
        work = list(outputs)
        while work:
            i = work.pop()
            if i not in found:
                found.add(i)
                work.extend(o for o in i.operands if self._is_inside(o, region, level))
        return sorted(found, key=self._number.__getitem__)

    def _is_inside(self, o: Instruction, region: _Region, level: int) -> bool:
        if o in region:
            return o in region.large or region.level[o] == level
        if o in self._indices:
            return True
        return o.shape.is_array and not region.is_small(o) and _is_made_inside(o)

    def _saves(self, kernel: _AttentionKernel) -> bool:
        """Whether one product makes values and another one reads them, and one of them is larger than operands and
        results together."""
        region = kernel.region
        large = [i for i in kernel.members if i in region.large]
        if not large or not any(i in region.closing for i in kernel.members):
            return False
        moved = sum(s.nbytes for i in (*_reads(kernel), *kernel.outputs) for s in i.shape.leaves())
        return moved < max(i.shape.nbytes for i in large)


def _is_scalar_constant(i: Instruction) -> bool:
    return i.opcode == "constant" and not i.shape.dims


def _is_made_inside(i: Instruction) -> bool:
    """Elementwise, or the same elements at other indices."""
    return is_elementwise(i) or i.opcode in _MOVEMENT


def _bit(number: int, level: int) -> int:
    return 1 << (number * _MOST_LEVELS + min(level, _MOST_LEVELS - 1))


# -- rebuilding ----------------------------------------------------------------------------------------------------


def _rebuilt(computation: Computation, kernels: list[_AttentionKernel]) -> Computation:
    """The computation with each kernel where its operands are there, otherwise in its order. Of kernels that would wait
    for each other some are not made."""
    while kernels:
        try:
            return _Rebuilding(computation, kernels).done()
        except _WaitingError as error:
            kernels = [k for k in kernels if k.region is not error.kernel.region]
    return computation


class _WaitingError(Exception):
    """``kernel`` needs what is made from its results."""

    def __init__(self, kernel: _AttentionKernel) -> None:
        super().__init__()
        self.kernel = kernel


class _Rebuilding:
    """One try to put ``kernels`` in the place of their members."""

    def __init__(self, computation: Computation, kernels: Sequence[_AttentionKernel]) -> None:
        self._old = computation
        self._makes = {o: k for k in kernels for o in k.outputs}
        self._gone = {i for k in kernels for i in k.members} - self._makes.keys()
        self._new: dict[Instruction, Instruction] = {}
        self._body: list[Instruction] = []

    def done(self) -> Computation:
        for i in self._old:
            if i not in self._gone:
                self._emit(i)
        return live_part(Computation(self._old.name, self._body, self._new[self._old.root]))

    def _emit(self, wanted: Instruction) -> None:
        """``wanted``, and before it all that it is made from."""
        work, begun = [wanted], set[Instruction]()
        while work:
            i = work[-1]
            kernel = self._makes.get(i)
            missing = [o for o in (i.operands if kernel is None else _reads(kernel)) if o not in self._new]
            if i not in self._new and missing:
                if i in begun and kernel is not None:
                    raise _WaitingError(kernel)
                begun.add(i)
                work.extend(missing)
                continue
            work.pop()
            if i not in self._new:
                self._make(i, kernel)

    def _make(self, i: Instruction, kernel: _AttentionKernel | None) -> None:
        if kernel is None:
            operands = tuple(self._new[o] for o in i.operands)
            same = all(a is b for a, b in zip(operands, i.operands, strict=True))
            self._new[i] = self._add(i if same else i.replace(operands=operands))
            return
        fusion = self._add(_fusion(kernel, self._new))
        for n, output in enumerate(kernel.outputs):
            self._new[output] = self._add(part_of(fusion, n, output)) if len(kernel.outputs) > 1 else fusion

    def _add(self, made: Instruction) -> Instruction:
        self._body.append(made)
        return made


def _reads(kernel: _AttentionKernel) -> list[Instruction]:
    inside = set(kernel.members)
    return list(dict.fromkeys(o for i in kernel.members for o in i.operands if o not in inside))


def _again(m: Instruction) -> Metadata:
    """What is computed a second time is not work that the program asked for; its name says so, as JAX's does."""
    given = m.metadata or Metadata()
    if _AGAIN in given.op_name:
        return given
    return replace(given, op_name=f"{_AGAIN}/{given.op_name}")


def _fusion(kernel: _AttentionKernel, new: Mapping[Instruction, Instruction]) -> Instruction:
    """The kernel as one instruction; its computation holds clones."""
    outside = _reads(kernel)
    inner = {
        o: Instruction("parameter", o.shape, (), MappingProxyType({"index": n}), name=f"p{n}")
        for n, o in enumerate(outside)
    }
    for m in kernel.members:
        inner[m] = m.replace(operands=tuple(inner[o] for o in m.operands), sharding=None)
        if m in kernel.again:
            inner[m].metadata = _again(m)
    root = inner[kernel.outputs[0]]
    if len(kernel.outputs) > 1:
        parts = [inner[o] for o in kernel.outputs]
        root = Instruction("tuple", tuple_shape(*(p.shape for p in parts)), parts, name="results")
        inner[root] = root
    first = next(i for i in kernel.members if i.opcode == "dot")
    last = kernel.outputs[-1]
    return Instruction(
        "fusion",
        root.shape,
        tuple(new[o] for o in outside),
        MappingProxyType({"kind": "kCustom", "calls": Computation("fused_attention", inner.values(), root)}),
        name="fused_attention",
        metadata=first.metadata if first.metadata is not None else last.metadata,
        origin=first.origin,
    )
