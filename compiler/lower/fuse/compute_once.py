"""Compute once: steps that compute the same on several devices, for readers that need it on one of them only.

Replicated parameters are updated by every device alike, and a process that runs several devices keeps one copy. So the
first device of each group that computes the same does it, the others go past. What a value *varies* over is found
forwards from shardings of arguments and groups of collectives, over which axes devices *want* a value of their own
backwards from what exchanges data, decides, or is a shard of a result. A step is done once per group of devices that
differ along no axis of either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from shardc.compiler.lower.buffers.linearise import LinearSteps, array_leaves
from shardc.compiler.lower.buffers.liveness import reads_of, writes_of
from shardc.compiler.lower.buffers.share_results import SAME_FOR_ALL
from shardc.compiler.lower.lowered import (
    AwaitStep,
    BranchStep,
    Buffer,
    BufferCopy,
    BufferPlan,
    Collective,
    KernelStep,
    Once,
    PredicateCheck,
    Step,
    WhileStep,
    leaf_steps,
)
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding

__all__ = ["compute_once"]

#: Axes as bits.
_Axes = int

#: Groups that a step's mask can tell apart.
_MOST_GROUPS = 64

#: What depends on the device, changes something outside, or draws numbers that nobody can repeat.
_OWN = frozenset({"partition-id", "replica-id", "rng", "rng-get-and-update-state", "custom-call", "infeed", "outfeed"})


def compute_once(module: Module, linear: LinearSteps, plan: BufferPlan) -> Once:
    """Which of the steps of ``linear`` one device of a group does for all, and which results may then be written over
    the donated argument that the group shares."""
    mesh = module.mesh
    devices = module.num_partitions * module.replica_count
    if mesh is None or not module.partitioned or mesh.size != devices or mesh.is_maximal or devices < 2:
        return Once()
    axes = _AxisBits(mesh)
    flow = _Flow(axes, _shardings(module.parameters, mesh), _shardings((module.entry.root,), mesh))
    wanted = flow.wanted(linear)
    found: dict[Step, _Axes] = {}
    for step in leaf_steps(linear.steps):
        if isinstance(step, KernelStep | BufferCopy) and (own := flow.of(step, wanted)) != axes.all:
            found[step] = own
    groups = sorted(set(found.values()))[:_MOST_GROUPS]
    number = {own: n for n, own in enumerate(groups)}
    found = {step: own for step, own in found.items() if own in number}
    steps = {step: number[own] for step, own in found.items()}
    received = {
        b: number[wanted.get(b, 0)]
        for step in leaf_steps(linear.steps)
        if isinstance(step, Collective)
        for b in step.results
        if wanted.get(b, 0) in number
    }
    return Once(
        groups=tuple(AxisGroups(mesh, axes.refs(axes.all & ~own)) for own in groups),
        steps=steps,
        wanted=received,
        results=_written_by(linear, plan, steps, received),
        in_place=flow.results_in_place(linear, plan, found),
    )


def _written_by(
    linear: LinearSteps, plan: BufferPlan, steps: Mapping[Step, int], received: Mapping[Buffer, int]
) -> tuple[int, ...]:
    """By result the group of which only first devices write its memory, -1 where others do too."""
    writers: list[set[int]] = [set() for _ in linear.results]
    for step in leaf_steps(linear.steps):
        for b in writes_of(step):
            if (ref := plan.ref(b)).space == "result":
                writers[ref.index].add(
                    steps.get(step, -1) if isinstance(step, KernelStep | BufferCopy) else received.get(b, -1)
                )
    return tuple(next(iter(found)) if len(found) == 1 else -1 for found in writers)


class _AxisBits:
    """The axes of a mesh as bits; those of size 1 do not count."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._names = [name for name, size in mesh.axes if size > 1]
        self.all: _Axes = (1 << len(self._names)) - 1

    def of(self, refs: Iterable[AxisRef]) -> _Axes:
        """A part of an axis stands for all of it."""
        names = {r.name for r in refs}
        return sum(1 << n for n, name in enumerate(self._names) if name in names)

    def whole(self, refs: Iterable[AxisRef]) -> _Axes:
        return self.of(r for r in refs if r.is_full)

    def refs(self, bits: _Axes) -> tuple[AxisRef, ...]:
        return tuple(AxisRef(name) for n, name in enumerate(self._names) if bits >> n & 1)


def _shardings(values: Sequence[Instruction], mesh: Mesh) -> list[Sharding | None]:
    """The sharding of each flat array; None where it is not one over the mesh of the devices."""
    out: list[Sharding | None] = []
    for value in values:
        count = len(array_leaves(value.shape))
        items = value.sharding if isinstance(value.sharding, tuple) else (value.sharding,)
        items = items if len(items) == count else (None,) * count
        out += [s if isinstance(s, Sharding) and s.mesh == mesh and not s.unreduced else None for s in items]
    return out


@dataclass
class _Flow:
    """Over which axes the values in buffers vary; ``parameters`` and ``results`` are the shardings of flat arrays."""

    axes: _AxisBits
    parameters: Sequence[Sharding | None]
    results: Sequence[Sharding | None]
    varies: dict[Buffer, _Axes] = field(default_factory=dict)

    def of(self, step: KernelStep | BufferCopy, wanted: dict[Buffer, _Axes]) -> _Axes:
        """The axes along which devices do ``step`` for themselves."""
        own = 0
        for b in writes_of(step):
            own |= wanted.get(b, 0)
        return own | self._made(step)

    def wanted(self, linear: LinearSteps) -> dict[Buffer, _Axes]:
        """By buffer: the axes along which each device needs its own copy of the value."""
        while self._forwards(linear.steps, 0):
            pass
        wanted: dict[Buffer, _Axes] = {}
        for b, sharding in zip(linear.results, self.results, strict=True):
            wanted[b] = wanted.get(b, 0) | self._split(sharding)
        while self._backwards(linear.steps, wanted):
            pass
        return wanted

    def _split(self, sharding: Sharding | None) -> _Axes:
        return self.axes.all if sharding is None else self.axes.of(a for axes in sharding.axes_by_dim for a in axes)

    def _read(self, b: Buffer) -> _Axes:
        if b.space == "constant":
            return 0
        return self._split(self.parameters[b.index]) if b.space == "argument" else self.varies.get(b, 0)

    def _made(self, step: KernelStep | BufferCopy | Collective | AwaitStep | PredicateCheck) -> _Axes:
        """Over which axes what ``step`` writes varies."""
        before = 0
        for b in reads_of(step):
            before |= self._read(b)
        if isinstance(step, KernelStep):
            return self.axes.all if _is_own(step.instruction) else before
        return self._exchanged(step, before) if isinstance(step, Collective) else before

    def _exchanged(self, step: Collective, before: _Axes) -> _Axes:
        """All members of a gather or a reduction get the same; of other exchanges each its own."""
        groups = step.instruction.attrs.get("replica_groups")
        if groups is None:
            return self.axes.all
        if isinstance(groups, AxisGroups) and groups.mesh == self.axes.mesh:
            whole, some = self.axes.whole(groups.axes), self.axes.of(groups.axes)
        else:
            everybody = len(groups.expand()) == 1
            whole, some = (self.axes.all, self.axes.all) if everybody else (0, self.axes.all)
        return before & ~whole | some & ~whole if step.instruction.opcode in SAME_FOR_ALL else before | some

    def _forwards(self, steps: Sequence[Step], decided: _Axes) -> bool:
        """One round over steps. Whether they run may vary over ``decided``. Returns whether anything changed."""
        changed = False
        for step in steps:
            if isinstance(step, WhileStep):
                inner = decided | self._read(step.predicate)
                changed |= self._forwards((*step.condition, *step.body), inner)
            elif isinstance(step, BranchStep):
                inner = decided | self._read(step.selector)
                for branch in step.branches:
                    changed |= self._forwards(branch, inner)
            else:
                found = self._made(step) | decided
                for b in writes_of(step):
                    if found & ~self.varies.get(b, 0):
                        self.varies[b] = self.varies.get(b, 0) | found
                        changed = True
        return changed

    def _backwards(self, steps: Sequence[Step], wanted: dict[Buffer, _Axes]) -> bool:
        """One round against the order. Returns whether anything changed."""
        changed = False

        def want(b: Buffer, axes: _Axes) -> None:
            nonlocal changed
            if axes & ~wanted.get(b, 0):
                wanted[b] = wanted.get(b, 0) | axes
                changed = True

        for step in reversed(steps):
            if isinstance(step, WhileStep):
                want(step.predicate, self.axes.all)
                changed |= self._backwards((*step.condition, *step.body), wanted)
            elif isinstance(step, BranchStep):
                want(step.selector, self.axes.all)
                for branch in step.branches:
                    changed |= self._backwards(branch, wanted)
            elif not isinstance(step, AwaitStep):
                axes = self.of(step, wanted) if isinstance(step, KernelStep | BufferCopy) else self.axes.all
                for b in reads_of(step):
                    want(b, axes)
        return changed

    def results_in_place(self, linear: LinearSteps, plan: BufferPlan, once: Mapping[Step, _Axes]) -> tuple[int, ...]:
        """The results that may lie in a donated argument of all devices that share it: its other readers are then
        behind a stop, where devices wait for each other, when the first of them writes."""
        split = [self._split(sharding) for sharding in self.parameters]
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        stops: list[int] = []
        for n, step in enumerate(linear.steps):
            stop = step.started if isinstance(step, AwaitStep) else step
            if isinstance(stop, Collective):
                stops.append(n)
            for leaf in leaf_steps((step,)):
                own = once.get(leaf, self.axes.all)
                for b in leaf.started.operands if isinstance(leaf, AwaitStep) else reads_of(leaf):
                    if b.space == "argument" and own & ~split[b.index]:
                        last[b.index] = n
                for b in writes_of(leaf):
                    if (ref := plan.ref(b)).space == "result":
                        first.setdefault(ref.index, n)

        def waits(read: int, written: int) -> bool:
            following = bisect_left(stops, read)
            return read < 0 or (following < len(stops) and stops[following] < written)

        return tuple(
            r
            for r, a in linear.aliases
            if self.parameters[a] is not None
            and self.parameters[a] == self.results[r]
            and waits(last.get(a, -1), first.get(r, len(linear.steps)))
        )


def _is_own(i: Instruction) -> bool:
    return i.opcode in _OWN or any(_holds_own(c) for _, c in called_computations(i))


@lru_cache(maxsize=4096)
def _holds_own(c: Computation) -> bool:
    return any(_is_own(i) for i in c)
