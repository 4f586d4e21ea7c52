"""Shardings over parts of the devices, and over devices in orders that no one mesh has: brought onto one mesh.

Shardings that all name the same devices, 0, 1, 4 and 5 say, are over those devices, numbered in order. Where the
orders of two shardings do not nest, one of them keeps its number of tiles and takes the devices in an order that does:
which device holds which tile shows at the program's border and in manual computations only. At the border,
``attrs["device_orders"]`` keeps what was asked for, by (``parameters`` or ``results``, leaf number) for each device the
one that shall have its tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardc.hlo.ir.custom_calls import ENTER_MANUAL, LEAVE_MANUAL
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.hlo.text.notations.tiles import tile_sharding
from shardc.sharding.axes.nearest_tiles import nearest
from shardc.sharding.axes.tile_ranges import device_list, tile_ranges

__all__ = ["DEVICE_ORDERS", "instead_of", "on_named_devices", "on_one_mesh"]

#: Key of ``Module.attrs``.
DEVICE_ORDERS = "device_orders"
_BORDER = ENTER_MANUAL | LEAVE_MANUAL
#: (parameters or results, number of the leaf) -> devices in the order of the tiles
Orders = dict[tuple[str, int], tuple[int, ...]]


def on_named_devices(module: Module) -> Module:
    """The module with devices renumbered, where all tiled shardings name the same part of the devices."""
    lists = [t.devices for _, t in _tile_everything(module)]
    named = {frozenset(x) for x in lists}
    if len(named) != 1 or module.num_partitions != 1 or not all(lists):
        return module
    if _speaks_of_devices(module) or any(map(_is_border, module.instructions())):
        return module
    (devices,) = named
    number = {d: n for n, d in enumerate(sorted(devices))}
    if all(n == d for d, n in number.items()) or any(len(x) != len(devices) for x in lists):
        return module
    return _change_shardings(module, lambda i, t: replace(t, devices=tuple(number[d] for d in t.devices)))


def on_one_mesh(module: Module, mesh_of: Callable[[list[TileSharding]], Mesh | None]) -> Module:
    """The module with shardings that no mesh expresses together with others over digits that the others leave.

    ``mesh_of`` gives a mesh that can express all of some shardings, None if there is none. What manual computations
    see stays as it is; so does all of a program that speaks of devices outside of them.
    """
    if _speaks_of_devices(module):
        return module
    seen = _seen_by_devices(module)
    kept: list[TileSharding] = []
    others: list[TileSharding] = []
    different = dict.fromkeys(t for _, t in _tile_everything(module))
    for t in sorted(different, key=lambda t: (t not in seen, tile_ranges(t) is None)):
        if not t.is_permutation or t.num_devices != math.prod(t.tile):
            return module
        (others if mesh_of([*kept, t]) is None else kept).append(t)
    mesh = mesh_of(kept) if others else None
    if mesh is None or any(t in seen or math.prod(t.tile) != mesh.size for t in others):
        return module
    moved = {t: _over(t, mesh) for t in others}
    orders: Orders = {}
    for kind, ops in (("parameters", module.parameters), ("results", (module.entry.root,))):
        leaves = (s for op in ops for s in _per_leaf(op))
        orders |= {(kind, n): instead_of(s, moved[s]) for n, s in enumerate(leaves) if s in moved}
    changed = _change_shardings(module, lambda i, t: moved.get(t, t))
    attrs: Mapping[str, Any] = {**changed.attrs, DEVICE_ORDERS: orders} if orders else changed.attrs
    return changed.with_(attrs=attrs)


def _over(tile: TileSharding, mesh: Mesh) -> TileSharding:
    """As many tiles along each dimension, each over digits of the mesh."""
    position = None if mesh.device_ids is None else np.argsort(np.asarray(mesh.device_ids))
    ranges = tile_ranges(tile, position) or tile_ranges(replace(tile, devices=(), reshape=tile.tile, transpose=()))
    assert ranges is not None, "the natural order of devices has digits"
    marks = [1]
    for _, size in mesh.axes:
        marks.append(marks[-1] * size)
    digits = [d for new in nearest([r for dim in ranges.dims for r in dim], marks) for d in new]
    numbers = {d: n for n, d in enumerate(sorted(digits))}
    new = replace(
        tile,
        devices=(),
        reshape=tuple(high // low for low, high in numbers),
        transpose=tuple(numbers[d] for d in digits),
    )
    if mesh.device_ids is None:
        return new
    return replace(new, devices=tuple(mesh.device_ids[d] for d in device_list(new)), reshape=(), transpose=())


def instead_of(wanted: TileSharding, given: TileSharding) -> tuple[int, ...]:
    """For each device the one that shall have what it has by ``given``: the same tile by ``wanted``.

    Of devices that have one tile, those that have it both ways keep it.
    """
    copies = wanted.tile[-1] if wanted.subgroups[-1:] == ("replicated",) or wanted.last_tile_dim_replicate else 1
    found: dict[int, int] = {}
    rows = [device_list(t).reshape(-1, copies).tolist() for t in (given, wanted)]
    for have, want in zip(*rows, strict=True):
        both = set(have) & set(want)
        found |= {d: d for d in both}
        found |= zip((d for d in have if d not in both), (d for d in want if d not in both), strict=True)
    return tuple(found[d] for d in range(len(found)))


def _tile_everything(module: Module) -> Iterable[tuple[Instruction, TileSharding]]:
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
    """Whether anything but what belongs to manual computations depends on the numbers of devices."""
    manual = any(map(_is_border, module.instructions()))
    return any(
        (i.opcode == "partition-id" and not _is_manual(i)) or (i.opcode in COLLECTIVES and not manual)
        for i in module.instructions()
    )


def _is_border(i: Instruction) -> bool:
    """Whether a manual computation begins or ends at this instruction."""
    return i.attrs.get("custom_call_target") in _BORDER


def _is_manual(i: Instruction) -> bool:
    """Whether the instruction's own sharding says that it is inside a manual computation."""
    s = i.sharding
    return bool(s.manual) if isinstance(s, Sharding) else isinstance(s, TileSharding) and s.kind == "manual"


def _seen_by_devices(module: Module) -> set[TileSharding]:
    """Shardings that decide what the devices of a manual computation see."""
    borders = [i for i in module.instructions() if _is_border(i)]
    at = {i for border in borders for i in (border, *border.operands)}
    return {t for i, t in _tile_everything(module) if i in at or "manual" in t.subgroups}


def _change_shardings(module: Module, change: Callable[[Instruction, TileSharding], TileSharding]) -> Module:
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
