"""Shardings over parts of the devices, and over devices in orders that no one mesh has: brought onto one mesh.

Shardings that all name the same devices, 0, 1, 4 and 5 say, are over those devices, numbered in order. Where the
orders of two shardings do not nest, one of them keeps its tiles and takes the devices in their natural order: which
device holds which tile shows at the program's border only. There, ``attrs["device_orders"]`` keeps what was asked
for, by (``parameters`` or ``results``, leaf number) for each device the one that shall have its tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from shardc.hlo.ir import Instruction, Module, rebuild_module
from shardc.hlo.notation import tile_sharding
from shardc.hlo.opset import COLLECTIVES
from shardc.hlo.sharding import AnySharding, Sharding, TileSharding
from shardc.sharding.tiles import device_list, tile_ranges

__all__ = ["DEVICE_ORDERS", "in_natural_order", "on_named_devices"]

#: Key of ``Module.attrs``.
DEVICE_ORDERS = "device_orders"
#: (parameters or results, number of the leaf) -> devices in the order of the tiles
Orders = dict[tuple[str, int], tuple[int, ...]]


def on_named_devices(module: Module) -> Module:
    """The module with devices renumbered, where all tiled shardings name the same part of the devices."""
    lists = [t.devices for _, t in _tiled(module)]
    named = {frozenset(x) for x in lists}
    if len(named) != 1 or module.num_partitions != 1 or not all(lists) or _speaks_of_devices(module):
        return module
    (devices,) = named
    number = {d: n for n, d in enumerate(sorted(devices))}
    if all(n == d for d, n in number.items()) or any(len(x) != len(devices) for x in lists):
        return module
    return _changed(module, lambda i, t: replace(t, devices=tuple(number[d] for d in t.devices)))


def in_natural_order(
    module: Module, fits: Callable[[list[TileSharding]], bool], order: tuple[int, ...] | None = None
) -> Module:
    """The module with shardings that do not fit those before them over devices in their natural order, or ``order``.

    ``fits`` tells whether one mesh can express all of some shardings. The module itself where manual computations,
    collectives or device numbers could tell the difference.
    """
    if _speaks_of_devices(module):
        return module
    kept: list[TileSharding] = []
    moved: dict[TileSharding, TileSharding] = {}
    different = dict.fromkeys(t for _, t in _tiled(module))
    for t in sorted(different, key=lambda t: tile_ranges(t) is None):
        natural = replace(t, devices=order or (), reshape=() if order else t.tile, transpose=())
        count = math.prod(t.tile)
        if (
            "manual" in t.subgroups
            or not t.is_permutation
            or t.num_devices != count
            or (order is not None and len(order) != count)
        ):
            return module
        if fits([*kept, t]):
            kept.append(t)
        else:
            moved[t] = natural
    orders: Orders = {}
    for kind, ops in (("parameters", module.parameters), ("results", (module.entry.root,))):
        leaves = (s for op in ops for s in _per_leaf(op))
        orders |= {(kind, n): _instead_of(s, order) for n, s in enumerate(leaves) if s in moved}
    changed = _changed(module, lambda i, t: moved.get(t, t))
    attrs: Mapping[str, Any] = {**changed.attrs, DEVICE_ORDERS: orders} if orders else changed.attrs
    return changed.with_(attrs=attrs)


def _instead_of(tile: TileSharding, order: tuple[int, ...] | None) -> tuple[int, ...]:
    """For each device the one that has its tile when tiles are not handed out in ``order``."""
    devices = device_list(tile).tolist()
    found = dict(zip(order or range(len(devices)), devices, strict=True))
    return tuple(found[d] for d in range(len(devices)))


def _tiled(module: Module) -> Iterable[tuple[Instruction, TileSharding]]:
    for i in module.instructions():
        for s in i.sharding if isinstance(i.sharding, tuple) else (i.sharding,):
            tile = _as_tile(s)
            if tile is not None and tile.kind == "tiled":
                yield i, tile


def _as_tile(s: Sharding | TileSharding | None) -> TileSharding | None:
    """Axis-based shardings over meshes of their own, as tiles."""
    return tile_sharding(s) if isinstance(s, Sharding) and s.mesh.axes else s if isinstance(s, TileSharding) else None


def _per_leaf(op: Instruction) -> list[TileSharding | None]:
    leaves = len(list(op.shape.leaves()))
    given = op.sharding if isinstance(op.sharding, tuple) else (op.sharding,) * leaves
    return [_as_tile(s) for s in given]


def _speaks_of_devices(module: Module) -> bool:
    return any(
        i.opcode in COLLECTIVES or i.opcode == "partition-id" or "Shape" in i.attrs.get("custom_call_target", "")
        for i in module.instructions()
    )


def _changed(module: Module, change: Callable[[Instruction, TileSharding], TileSharding]) -> Module:
    def one(i: Instruction, s: Sharding | TileSharding | None) -> Sharding | TileSharding | None:
        tile = _as_tile(s)
        if tile is None or tile.kind != "tiled":
            return s
        new = change(i, tile)
        return s if new is tile or new == tile else new

    def rewrite(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.sharding is None:
            return None
        new: AnySharding = (
            tuple(one(old, s) for s in old.sharding) if isinstance(old.sharding, tuple) else one(old, old.sharding)
        )
        return None if new == old.sharding else old.replace(operands=operands, sharding=new)

    return rebuild_module(module, rewrite)
