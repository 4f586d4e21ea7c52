"""Sub-axes that cannot be named together, of sizes that do not divide one another, become such that can.

``x:(1)2`` and ``x:(1)3`` of an axis of 6 cut it in ways that do not nest. Arguments and results keep theirs first,
then what most values have. Any other value gets as many shards from the positions that are left, ``x:(2)3`` say: inside
of the program nobody sees which device holds which shard. Where it is an argument or a result, one permute of whole
shards brings them where they were asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.text.notations.tiles import tile_sharding
from shardc.sharding.axes.device_orders import DEVICE_ORDERS, instead_of
from shardc.sharding.axes.nearest_tiles import chain_of_marks, nearest
from shardc.sharding.axes.sub_axes import axis_range, merge, sub_axis

__all__ = ["NestSubAxes"]

#: Marks between which each axis is cut.
Marks = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NestSubAxes:
    """See the module docstring."""

    name: str = "nest-sub-axes"
    why: str = "positions along an axis are numbered in one way"

    def run(self, module: Module) -> Module:
        if module.mesh is None:
            return module
        marks = _marks(module, module.mesh)
        given = dict.fromkeys(s for i in module.instructions() for s in _shardings(i) if s.mesh == module.mesh)
        moved = {s: n for s in given if (n := _nest(s, marks)) is not s}
        if not moved:
            return module

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if not any(s in moved for s in _shardings(old)):
                return None
            leaves = tuple(moved.get(s, s) for s in old.leaf_shardings())
            return old.replace(operands=operands, sharding=leaves if old.shape.is_tuple else leaves[0])

        orders = dict(module.attrs.get(DEVICE_ORDERS, {}))
        for place, s in _interface(module):
            if s in moved:
                inner = instead_of(tile_sharding(s), tile_sharding(moved[s]))
                outer = orders.get(place, range(module.mesh.size))
                orders[place] = tuple(outer[d] for d in inner)
        changed = rebuild_module(module, change)
        return changed.with_(attrs={**changed.attrs, DEVICE_ORDERS: orders} if orders else changed.attrs)


def _shardings(i: Instruction) -> Iterator[Sharding]:
    given = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
    return (s for s in given if isinstance(s, Sharding))


def _interface(module: Module) -> Iterator[tuple[tuple[str, int], Sharding]]:
    """Arguments and results by kind and number of the leaf."""
    for kind, ops in (("parameters", module.parameters), ("results", (module.entry.root,))):
        for n, s in enumerate(s for op in ops for s in op.leaf_shardings()):
            yield (kind, n), s


def _marks(module: Module, mesh: Mesh) -> Marks:
    """Where axes are cut: as arguments and results want, then by the number of values that want it."""
    counts: Counter[AxisRef] = Counter()
    for i in module.instructions():
        counts.update(_sub_axes(s for s in _shardings(i) if s.mesh == mesh))
    first = dict.fromkeys(_sub_axes(s for _, s in _interface(module) if s.mesh == mesh))
    by_count = sorted(counts, key=lambda a: (-counts[a], a))
    ranges: dict[str, list[tuple[int, int]]] = {}
    for a in (*first, *by_count):
        ranges.setdefault(a.name, []).append(axis_range(a, mesh))
    return {name: chain_of_marks(mesh.axis_size(name), own) for name, own in ranges.items()}


def _sub_axes(shardings: Iterable[Sharding]) -> Iterator[AxisRef]:
    return (a for s in shardings for a in s.used_axes() if not a.is_full)


def _nest(s: Sharding, marks: Marks) -> Sharding:
    """The sharding with sub-axes between ``marks``; itself where it has no others."""
    found: dict[AxisRef, tuple[AxisRef, ...]] = {}
    for name in dict.fromkeys(a.name for a in _sub_axes((s,))):
        own = [a for a in s.used_axes() if a.name == name]
        ranges = [axis_range(a, s.mesh) for a in own]
        if all(end in marks[name] for r in ranges for end in r):
            continue
        for a, digits in zip(own, nearest(ranges, marks[name]), strict=True):
            found[a] = tuple(sub_axis(name, low, high, s.mesh) for low, high in digits)
    if not found:
        return s

    def over(axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        return merge((b for a in axes for b in found.get(a, (a,))), s.mesh)

    return replace(s, dims=tuple(replace(d, axes=over(d.axes)) for d in s.dims), unreduced=over(s.unreduced))
