"""Windowed einsums (collective matmul): products compute with parts of an array while the other parts travel.

(Wang et al., Overlap Communication with Dependent Computation via Decomposition, ASPLOS 2023.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    Origin,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
    topological,
    users_of,
)
from shardc.hlo.ir.make import keep_reachable, splat_source
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.partitioner.emit.emitter import Emitter, Reducers
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.emit.names import NameSupply
from shardc.partitioner.optimise.einsums.product import cut_of_operand, cut_of_result, multiply_parts
from shardc.partitioner.optimise.einsums.ring import Ring, RingReader, gather_ring, scatter_ring
from shardc.partitioner.optimise.einsums.ring_time import ring_of_gather, ring_of_scatter
from shardc.partitioner.optimise.group import in_groups
from shardc.partitioner.optimise.loops.prefetch_gathers import computed_from, known_early
from shardc.partitioner.optimise.reduction import reducer
from shardc.partitioner.options import Choice

__all__ = ["WindowEinsums"]

_NOTE = "sent in parts during the computation"


@dataclass(frozen=True, slots=True)
class WindowEinsums:
    """An all-gather that products read, or a product that a reduce-scatter reads, becomes a ring of permutes.

    Other readers of the gathered array get it put together from the parts. ``auto`` takes the ring where its modelled
    time on the ``machine`` is less; as many bytes travel either way. What a loop knows early (its layers' weights) it
    can gather beside anything else, and not in parts, where transfers go on beside kernels. Sums of narrow floats are
    not scattered in parts: they would be rounded on every member.
    """

    choice: Choice = "auto"
    machine: Machine | None = None
    name: str = "window-einsums"
    why: str = "a product need not wait for all of its operand"

    def run(self, module: Module) -> Module:
        groups = [g for i in module.instructions() if (g := _ring_groups(i)) is not None]
        if self.choice == "never" or (self.choice == "auto" and self.machine is None) or not groups:
            return module
        table = AxisTable(groups[0].mesh, [Sharding(g.mesh, (DimSharding(g.axes),)) for g in groups])
        work = _Work(table, self.choice, self.machine, NameSupply(i.name for i in module.instructions()))
        bodies = {i.attrs["body"] for i in module.instructions() if i.opcode == "while"}
        after = rebuild_computations(
            module, lambda c, called: work.windowed(rebuild_computation(c, None, called), loops=c in bodies)
        )
        return keep_reachable(after, after.entry)


def _ring_groups(i: Instruction) -> AxisGroups | None:
    """The groups of a collective that may become a ring."""
    groups = i.attrs.get("replica_groups")
    fits = i.opcode == "all-gather" or (i.opcode == "reduce-scatter" and reducer(i) == "add")
    if not fits or len(i.operands) != 1 or i.shape.is_tuple or not isinstance(groups, AxisGroups):
        return None
    return groups if groups.group_size > 1 else None


@dataclass(frozen=True, slots=True)
class _Scattered:
    """A product, with what is done to its elements before a reduce-scatter: ``steps`` from the product on, each with
    the dimension of its result that will be scattered."""

    scatter: Instruction
    steps: tuple[tuple[Instruction, int], ...]

    @property
    def dot(self) -> Instruction:
        return self.steps[0][0]

    def values(self) -> list[Instruction]:
        """What the steps are computed from; of a scalar everywhere only the scalar."""
        inner = {s for s, _ in self.steps}
        found = (_source(o) for s, _ in self.steps for o in s.operands if o not in inner)
        return list(dict.fromkeys(found))

    def part(self, e: Emitter, values: Mapping[Instruction, Instruction], start: Instruction) -> Instruction:
        """Elements from ``start`` on along the scattered dimension."""
        (last,) = self.scatter.attrs["dimensions"]
        size = self.scatter.shape.dims[last]
        (dot, dim), *others = self.steps
        factors = [values[o] if _source(o) is o else e.splat(values[_source(o)], o.shape.dims) for o in dot.operands]
        made = multiply_parts(e, dot, cut_of_result(dot, dim), factors, start, size)
        done = {dot: made}
        for s, dim in others:
            dims = (*s.shape.dims[:dim], size, *s.shape.dims[dim + 1 :])
            parts = []
            for o in s.operands:
                if o not in done and _source(o) is not o:
                    done[o] = e.splat(values[_source(o)], dims)
                elif o not in done:
                    done[o] = e.dynamic_slice(values[o], dim, start, size)
                parts.append(done[o])
            done[s] = e.add(s.opcode, s.shape.with_dims(dims), *parts, **s.attrs)
        return done[self.steps[-1][0]]


def _source(x: Instruction) -> Instruction:
    """The scalar that ``x`` has everywhere, else ``x``."""
    scalar = splat_source(x)
    return x if scalar is None else scalar


@dataclass(slots=True)
class _Work:
    """One run of the pass."""

    table: AxisTable
    choice: Choice
    machine: Machine | None
    names: NameSupply
    reducers: Reducers = field(default_factory=Reducers)

    def windowed(self, computation: Computation, *, loops: bool) -> Computation:
        if not any(_ring_groups(i) is not None for i in computation):
            return computation
        users = users_of(computation)
        hidden = self._hidden(computation) if loops else set()
        gathers: dict[Instruction, tuple[Ring, list[Instruction]]] = {}
        scatters: dict[Instruction, tuple[Ring, _Scattered]] = {}
        taken: set[Instruction] = set()
        for i in computation:
            groups = _ring_groups(i)
            if groups is None:
                continue
            if i in hidden:
                continue
            if i.opcode == "all-gather":
                dots = [d for d in _products_of(i, users) if d not in taken]
                ring = ring_of_gather(self.table, self.machine, self.choice, i, groups, dots) if dots else None
                if ring is not None:
                    gathers[i] = (ring, dots)
                    taken.update(dots)
                continue
            scattered = _find_scattered(computation, i, users)
            if scattered is not None and scattered.dot not in taken:
                ring = ring_of_scatter(self.table, self.machine, self.choice, i, groups, *scattered.steps[0])
                if ring is not None:
                    scatters[i] = (ring, scattered)
        if not gathers and not scatters:
            return computation
        return self._rewritten(computation, users, gathers, scatters)

    def _hidden(self, body: Computation) -> set[Instruction]:
        """Gathers that something else can go on beside, because their operands are there when the iteration begins."""
        beside = self.choice == "auto" and self.machine is not None and self.machine.device.transfers > 0
        if not beside or len(body.parameters) != 1 or body.root.opcode != "tuple":
            return set()
        return computed_from(body, known_early(body), travelling=True)

    def _rewritten(
        self,
        computation: Computation,
        users: Mapping[Instruction, Sequence[Instruction]],
        gathers: Mapping[Instruction, tuple[Ring, list[Instruction]]],
        scatters: Mapping[Instruction, tuple[Ring, _Scattered]],
    ) -> Computation:
        order = in_groups(computation, [[g, *dots] for g, (_, dots) in gathers.items()])
        if order is None:  # rings that would wait for each other read one product each
            gathers = {g: (ring, dots[:1]) for g, (ring, dots) in gathers.items()}
            order = in_groups(computation, [[g, *dots] for g, (_, dots) in gathers.items()])
            if order is None:
                gathers, order = {}, list(computation)
        e = Emitter(self.table, self.reducers, self.names)
        new: dict[Instruction, Instruction] = {}
        for i in order:
            if i in gathers:
                ring, dots = gathers[i]
                alone = all(u in dots for u in users[i]) and i is not computation.root
                new.update(self._window_gather(e, i, ring, dots, new, whole=not alone))
            elif i in scatters:
                ring, scattered = scatters[i]
                new[i] = self._find_scattered(e, ring, scattered, new)
            elif i not in new:
                operands = tuple(new[o] for o in i.operands)
                same = all(a is b for a, b in zip(operands, i.operands, strict=True))
                new[i] = i if same else i.replace(operands=operands)
        root = new[computation.root]
        if root.sharding is None and computation.root.sharding is not None:
            root = root.replace(sharding=computation.root.sharding)
        keep = [new[i] for i in computation if i.opcode == "parameter" or has_side_effect(i)]
        return Computation(computation.name, topological([*keep, root]), root)

    def _window_gather(
        self,
        e: Emitter,
        gather: Instruction,
        ring: Ring,
        dots: Sequence[Instruction],
        new: Mapping[Instruction, Instruction],
        *,
        whole: bool,
    ) -> dict[Instruction, Instruction]:
        """The products, and with ``whole`` the gathered array, by what they replace."""
        (dim,) = gather.attrs["dimensions"]
        readers = []
        for dot in dots:
            side = dot.operands.index(gather)
            other = new[dot.operands[1 - side]]
            readers.append(RingReader(dot, dim, dot, side, cut_of_operand(dot, side, dim), other))
        if whole:
            readers.append(RingReader(gather, dim))
        self._describe(e, gather)
        made = gather_ring(e, ring, new[gather.operands[0]], readers)
        found = {r.like: x for r, x in zip(readers, made, strict=True)}
        return found if whole else {**found, gather: made[0]}

    def _find_scattered(
        self, e: Emitter, ring: Ring, scattered: _Scattered, new: Mapping[Instruction, Instruction]
    ) -> Instruction:
        self._describe(e, scattered.scatter)
        values = scattered.values()

        def produce(e: Emitter, given: list[Instruction], start: Instruction) -> Instruction:
            return scattered.part(e, dict(zip(values, given, strict=True)), start)

        return scatter_ring(e, ring, produce, [new[v] for v in values])

    def _describe(self, e: Emitter, i: Instruction) -> None:
        """What comes next is emitted for ``i``."""
        old = i.origin or Origin("")
        e.metadata = i.metadata
        e.origin = Origin("; ".join(r for r in (old.reason, _NOTE) if r), "windowed", old.value, old.axes, old.causes)


def _products_of(gather: Instruction, users: Mapping[Instruction, Sequence[Instruction]]) -> list[Instruction]:
    """Products of the gathered array with something that does not depend on it."""
    after = {gather}
    work = [gather]
    while work:
        for u in users[work.pop()]:
            if u not in after:
                after.add(u)
                work.append(u)
    readers = dict.fromkeys(users[gather])
    return [u for u in readers if u.opcode == "dot" and sum(o in after for o in u.operands) == 1]


def _find_scattered(
    computation: Computation, scatter: Instruction, users: Mapping[Instruction, Sequence[Instruction]]
) -> _Scattered | None:
    """The product behind a reduce-scatter; None when others read it, or its sums would be rounded on the way."""
    dtype = scatter.shape.dtype
    if dtype.is_float and dtype.bits < 32:
        return None
    steps: list[tuple[Instruction, int]] = []
    (x,), (dim,) = scatter.operands, scatter.attrs["dimensions"]
    while len(users[x]) == 1 and x is not computation.root:
        steps.append((x, dim))
        if x.opcode == "dot":
            return _Scattered(scatter, tuple(reversed(steps)))
        before = _before(x, dim)
        if before is None:
            return None
        x, dim = before
    return None


def _before(x: Instruction, dim: int) -> tuple[Instruction, int] | None:
    """The operand that ``x`` changes or moves element by element, and the dimension of it that becomes ``dim``."""
    if x.opcode == "transpose":
        return x.operands[0], x.attrs["dimensions"][dim]
    if x.opcode == "broadcast":
        kept: tuple[int, ...] = x.attrs["dimensions"]
        return (x.operands[0], kept.index(dim)) if dim in kept else None
    if OPS[x.opcode].family != "elementwise" or any(o.shape.dims != x.shape.dims for o in x.operands):
        return None
    inner = [o for o in x.operands if _source(o) is o and o.opcode != "constant"]
    return (inner[0], dim) if len(inner) == 1 else None
