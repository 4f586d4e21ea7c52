"""Parameters and results that lie on the devices in another order than the mesh has them.

Tiles are handed over by one permute: where a parameter comes in, and where a result goes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from shardc.hlo.ir.groups import ListPairs
from shardc.hlo.ir.ir import Computation, Instruction, Origin, rebuild_computation
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, Sharding
from shardc.hlo.ir.types import tuple_shape

__all__ = ["reorder_devices"]

#: (parameters or results, number of the leaf) -> the device that has what device k of the mesh's order would have.
Orders = Mapping[tuple[str, int], tuple[int, ...]]


def reorder_devices(entry: Computation, orders: Orders) -> Computation:
    """A local entry whose parameters and results lie as ``orders`` say, and whose shardings tell so."""
    if not orders:
        return entry
    number = 0
    parameters: dict[Instruction, list[tuple[int, ...] | None]] = {}
    for p in entry.parameters:
        count = len(list(p.shape.leaves()))
        parameters[p] = [orders.get(("parameters", number + n)) for n in range(count)]
        number += count
    results = [orders.get(("results", n)) for n in range(len(list(entry.root.shape.leaves())))]

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        given = parameters.get(old)
        new = None
        if given is not None and any(given):
            own = old.replace(sharding=_annotate(old, given))
            new = _move(own, iter(given), inwards=True)
        if old is not entry.root or not any(results):
            return new
        last = new or old.replace(operands=operands)
        moved = _move(last, iter(results), inwards=False)
        return moved.replace(sharding=_annotate(old, results))

    return rebuild_computation(entry, change)


def _annotate(op: Instruction, orders: list[tuple[int, ...] | None]) -> AnySharding:
    shardings = [s if o is None else _over(s, o) for s, o in zip(op.leaf_shardings(), orders, strict=True)]
    return tuple(shardings) if op.shape.is_tuple else shardings[0]


def _over(s: Sharding, order: tuple[int, ...]) -> Sharding:
    ids = s.mesh.device_ids or range(s.mesh.size)
    return replace(s, mesh=Mesh(s.mesh.axes, tuple(order[d] for d in ids), s.mesh.name))


def _move(x: Instruction, orders: Iterator[tuple[int, ...] | None], *, inwards: bool) -> Instruction:
    """``x`` with its leaves sent on: from the device that was asked for (``inwards``), or to it."""
    if x.shape.is_tuple:
        elements = [Instruction("get-tuple-element", s, (x,), {"index": n}) for n, s in enumerate(x.shape.elements)]
        parts = [_move(e, orders, inwards=inwards) for e in elements]
        return Instruction("tuple", tuple_shape(*(p.shape for p in parts)), parts, metadata=x.metadata)
    order = next(orders)
    if order is None:
        return x
    pairs = tuple((d, k) if inwards else (k, d) for k, d in enumerate(order))
    why = f"%{x.name} is on the devices in the order {', '.join(map(str, order))}"
    return Instruction(
        "collective-permute",
        x.shape.plain,
        (x,),
        {"source_target_pairs": ListPairs(pairs)},
        metadata=x.metadata,
        origin=Origin(why, "place", x.name),
    )
