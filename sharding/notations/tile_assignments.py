"""Between GSPMD's tile assignments and axis-based shardings.

`convert_to_axes` finds one mesh for all tile assignments of a module: the digits of the device number that they
use become the axes, named ``axis_0``, ``axis_1``, ... from major to minor. `from_tile` and `to_tile` convert one
sharding; what a mesh can express converts both ways without loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.text.notations.tiles import tile_reduction, tile_sharding
from shardc.sharding.axes.device_orders import on_named_devices, on_one_mesh
from shardc.sharding.axes.sub_axes import check_axes, merge, sub_axis
from shardc.sharding.axes.tile_ranges import Range, tile_ranges
from shardc.sharding.notations.shard_like import ShareGroup, mark_groups, share_group

__all__ = ["convert_to_axes", "derive_mesh", "from_tile", "to_tile"]

#: The tile assignment of an axis-based sharding: V2 (iota) unless the mesh has device ids in no such order.
to_tile = tile_sharding
#: Stands for the instruction where only the shardings matter.
_NOBODY = Instruction("tuple", tuple_shape(), ())


def convert_to_axes(module: Module) -> Module:
    """The module with ``mesh`` set and every written sharding axis-based over it; the same object if it is so.

    Raises `AnnotationError` naming two shardings that no mesh can express together, or a sharding that does not fit
    its value.
    """
    alone = next((i for i in module.instructions() if _feeds_one_device(i)), None)
    if any(i.opcode == "outfeed" and i.sharding is not None for i in module.instructions()):
        module = rebuild_module(module, _constrain_outfeed)
    written = [(i, s) for i in module.instructions() for s in _leaves(i.sharding)]
    _check_written(written)
    tiles = [(i, s) for i, s in written if isinstance(s, TileSharding)]
    meshes = {s.mesh for _, s in written if isinstance(s, Sharding) and s.mesh.axes}
    mesh = module.mesh
    if mesh is None:
        mesh = next(iter(meshes)) if len(meshes) == 1 else None
    if mesh is not None and not tiles and meshes <= {mesh}:
        return module if module.mesh is not None else module.with_(mesh=mesh, num_partitions=mesh.size)
    if mesh is None:
        module = on_one_mesh(on_named_devices(module), _any_mesh)
        mesh = derive_mesh(_as_tiles(module), module.num_partitions)
    else:
        module = on_one_mesh(module, partial(_if_all_fit, mesh))
    if alone is not None and mesh.size > 1:
        raise UnsupportedError(
            f"{alone.opcode} cannot be partitioned: one device alone would exchange data with its host",
            where=_where(alone),
            fix="replicate the data or shard it over the mesh",
        )
    return _convert_module(module, mesh)


def _as_tiles(module: Module) -> list[tuple[Instruction, TileSharding]]:
    """The written shardings as tile assignments, axis-based ones last."""
    written = [(i, s) for i in module.instructions() for s in _leaves(i.sharding)]
    tiles = [(i, s) for i, s in written if isinstance(s, TileSharding)]
    return [*tiles, *((i, to_tile(s)) for i, s in written if isinstance(s, Sharding))]


def _any_mesh(tiles: Sequence[TileSharding]) -> Mesh | None:
    """A mesh that can express all of these."""
    devices = math.prod(tiles[0].tile)
    pairs = [(_NOBODY, t) for t in tiles if math.prod(t.tile) == t.num_devices == devices]
    return next((m for o in _device_orders(pairs) if (m := _mesh_for(pairs, devices, o)) is not None), None)


def _if_all_fit(mesh: Mesh, tiles: Sequence[TileSharding]) -> Mesh | None:
    """The mesh, if it can express all of these."""
    try:
        for t in tiles:
            subgroups = t.subgroups or (("replicated",) if t.last_tile_dim_replicate else ())
            from_tile(t, mesh, len(t.tile) - len(subgroups))
    except AnnotationError:
        return None
    return mesh


def _check_written(written: Iterable[tuple[Instruction, Sharding | TileSharding]]) -> None:
    """Raise for axis-based shardings with wrong axes or of another rank than their value."""
    seen: set[tuple[Sharding, int]] = set()
    for i, s in written:
        if not isinstance(s, Sharding) or i.shape.is_tuple or not i.shape.is_array or (s, i.shape.rank) in seen:
            continue
        seen.add((s, i.shape.rank))
        if s.rank != i.shape.rank and not s.mesh.is_maximal:
            raise AnnotationError(
                f"sharding {s} has {s.rank} dimensions, but the value is {i.shape}", where=_where(i),
                fix="give one list of axes per dimension",
            )  # fmt: skip
        if s.mesh.axes:
            check_axes(s, _where(i))


def _feeds_one_device(i: Instruction) -> bool:
    """Whether data of an infeed or outfeed, tokens aside, is placed on one device."""
    if i.opcode not in ("infeed", "outfeed"):
        return False
    data = i.operands[0].shape if i.opcode == "outfeed" else i.shape.elements[0]
    given = list(_leaves(i.sharding))[: len([s for s in data.leaves() if s.is_array])]
    return any(s.kind == "maximal" if isinstance(s, TileSharding) else s.mesh.is_maximal for s in given)


def _constrain_outfeed(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    """What an outfeed says, leaf by leaf and perhaps for its token, is how the value that it gives lies."""
    if old.opcode != "outfeed" or old.sharding is None:
        return None
    count = len([s for s in old.operands[0].shape.leaves() if s.is_array])
    given = old.sharding if isinstance(old.sharding, tuple) else (old.sharding,) * count
    sharding: AnySharding = given[:count] if old.operands[0].shape.is_tuple else given[0]
    laid = Instruction(
        "custom-call",
        operands[0].shape,
        operands[:1],
        {"custom_call_target": "Sharding"},
        sharding=sharding,
        metadata=old.metadata,
    )
    return old.replace(operands=(laid, *operands[1:]), sharding=None)


def _convert_module(module: Module, mesh: Mesh) -> Module:
    groups: dict[str, list[ShareGroup]] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        new = _convert_any(old, mesh)
        shared = [g for leaf, s in enumerate(_all_leaves(old)) if (g := share_group(s, leaf)) is not None]
        if shared:
            groups[old.name] = shared
        return None if new is old.sharding else old.replace(operands=operands, sharding=new)

    rebuilt = mark_groups(rebuild_module(module, change), groups)
    return rebuilt.with_(mesh=mesh, num_partitions=max(mesh.size, module.num_partitions))


def _convert_any(i: Instruction, mesh: Mesh) -> AnySharding:
    shapes = list(i.shape.leaves())
    if not shapes:
        return None
    if isinstance(i.sharding, tuple):
        if len(i.sharding) != len(shapes):
            raise AnnotationError(
                f"{len(i.sharding)} shardings are given for a value with {len(shapes)} leaves", where=_where(i),
                fix="give one sharding per leaf",
            )  # fmt: skip
        return tuple(_convert(s, shape, i, mesh) for s, shape in zip(i.sharding, shapes, strict=True))
    if i.shape.is_tuple and i.sharding is not None:
        return tuple(_convert(i.sharding, shape, i, mesh) for shape in shapes)
    return _convert(i.sharding, shapes[0], i, mesh)


def _convert(s: Sharding | TileSharding | None, shape: Shape, i: Instruction, mesh: Mesh) -> Sharding | None:
    if s is None or not shape.is_array:
        return None
    if isinstance(s, Sharding):
        if s.mesh == mesh:
            return s
        if s.mesh.is_maximal:
            return Sharding.replicate(mesh, shape.rank)
        if not s.mesh.axes:
            return replace(s, mesh=mesh)
        s = to_tile(s)
    new = from_tile(s, mesh, shape.rank, _where(i))
    return new if new is None else _open_unspecified(new, i)


def _open_unspecified(s: Sharding, i: Instruction) -> Sharding:
    """Dimensions that a ``Sharding`` custom call leaves to propagation (``unspecified_dims=[0,1]``)."""
    text = str(i.attrs.get("backend_config", ""))
    _, found, rest = text.partition("unspecified_dims=[")
    if i.opcode != "custom-call" or not found:
        return s
    named = {int(n) for n in rest.partition("]")[0].split(",") if n.strip().isdigit()}
    return replace(s, dims=tuple(replace(d, closed=n not in named) for n, d in enumerate(s.dims)))


def derive_mesh(tiles: Sequence[tuple[Instruction, TileSharding]], num_partitions: int = 1) -> Mesh:
    """The coarsest mesh whose axes express all ``tiles`` (the instructions are for error messages)."""
    tiled = [(i, t) for i, t in tiles if t.kind == "tiled"]
    devices = math.prod(tiled[0][1].tile) if tiled else num_partitions
    for i, t in tiled:
        if math.prod(t.tile) != devices or t.num_devices != devices:
            raise AnnotationError(
                f"this sharding has {math.prod(t.tile)} tiles, but others cover {devices} devices", where=_where(i),
                fix="give all shardings of the program the same devices",
            )  # fmt: skip
        if t.devices and sorted(t.devices) != list(range(devices)):
            raise AnnotationError(
                f"the sharding uses other devices than 0 to {devices - 1}", where=f"{_where(i)}: {_text(t)}",
                fix="name each device of the program once, or the same part of the devices in all shardings",
            )  # fmt: skip
    if tiled and num_partitions not in (1, devices):
        raise AnnotationError(
            f"the shardings are over {devices} devices, but num_partitions is {num_partitions}",
            where=_where(tiled[0][0]),
            fix="make the shardings cover all partitions, for example with last_tile_dim_replicate",
        )
    for order in _device_orders(tiled):
        mesh = _mesh_for(tiled, devices, order)
        if mesh is not None:
            return mesh
    raise _no_mesh(tiled)


def _device_orders(tiled: Sequence[tuple[Instruction, TileSharding]]) -> Iterable[NDArray[np.int64] | None]:
    """The natural order of devices, then the orders of the explicit lists."""
    yield None
    seen: set[tuple[int, ...]] = set()
    for _, t in tiled:
        if t.devices and t.devices not in seen:
            seen.add(t.devices)
            if t.is_permutation:
                yield np.asarray(t.devices, dtype=np.int64)


def _mesh_for(
    tiled: Sequence[tuple[Instruction, TileSharding]], devices: int, order: NDArray[np.int64] | None
) -> Mesh | None:
    position = None if order is None else np.argsort(order)
    cuts = {1, devices}
    for t in dict.fromkeys(t for _, t in tiled):
        ranges = tile_ranges(t, position)
        if ranges is None:
            return None
        cuts |= {mark for dim in ranges.dims for r in dim for mark in r}
    marks = sorted(cuts)
    if any(high % low for low, high in pairwise(marks)):
        return None
    axes = tuple((f"axis_{n}", high // low) for n, (low, high) in enumerate(pairwise(marks)))
    return Mesh(axes, None if order is None or not axes else tuple(int(d) for d in order))


def _no_mesh(tiled: Sequence[tuple[Instruction, TileSharding]]) -> AnnotationError:
    """Name two shardings that do not go together (or one that no mesh has)."""
    fix = "use shardings whose device orders nest, or name the axes with a mesh"
    devices = math.prod(tiled[0][1].tile)
    for n, (i, t) in enumerate(tiled):
        if all(_mesh_for([(i, t)], devices, order) is None for order in _device_orders([(i, t)])):
            return AnnotationError("no mesh has this order of devices", where=f"{_where(i)}: {_text(t)}", fix=fix)
        for j, u in tiled[:n]:
            pair = [(j, u), (i, t)]
            if all(_mesh_for(pair, devices, order) is None for order in _device_orders(pair)):
                where = f"{_where(j)}: {_text(u)}, and {_where(i)}: {_text(t)}"
                return AnnotationError("no mesh can express both of these shardings", where=where, fix=fix)
    where = ", ".join(f"{_where(i)}: {_text(t)}" for i, t in tiled[:3])
    return AnnotationError("no mesh can express all of these shardings", where=where, fix=fix)


def from_tile(tile: TileSharding, mesh: Mesh, rank: int, where: str = "") -> Sharding | None:
    """The axis-based form over ``mesh``, closed; None for ``unknown``. Maximal becomes a maximal mesh.

    Raises `AnnotationError` if the mesh cannot express it or the rank differs. Example: over ``a=2,b=2``,
    ``devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate`` is ``[{}, {b}]``.
    """
    if tile.kind == "unknown":
        return None
    if tile.kind == "maximal":
        return Sharding(Mesh((), tile.devices[:1]), (DimSharding(),) * rank)
    if tile.kind == "manual":
        return replace(Sharding.replicate(mesh, rank), manual=mesh.axis_names)
    if tile.kind == "unreduced":
        everything = tuple(AxisRef(n) for n in mesh.axis_names)
        return replace(Sharding.replicate(mesh, rank), unreduced=everything, reduction=tile_reduction(tile))
    if tile.kind == "replicated":
        return Sharding.replicate(mesh, rank)
    data = len(tile.tile) - len(tile.subgroups or (("replicated",) if tile.last_tile_dim_replicate else ()))
    if data != rank:
        raise AnnotationError(
            f"sharding {_text(tile)} has {data} dimensions, but the value has {rank}", where=where or None,
            fix="give one tile size per dimension",
        )  # fmt: skip
    position = None if mesh.device_ids is None else np.argsort(np.asarray(mesh.device_ids))
    ranges = tile_ranges(tile, position)
    if ranges is None or ranges.devices != mesh.size:
        raise _does_not_fit(tile, mesh, where)
    axes = [_axes_of(dim, mesh, tile, where) for dim in ranges.dims]
    groups: dict[str, list[AxisRef]] = {}
    for kind, group in zip(tile.subgroups, axes[data:], strict=False):
        groups.setdefault(kind, []).extend(group)
    manual = groups.get("manual", [])
    part = next((a for a in merge(manual, mesh) if not a.is_full), None)
    if part is not None:
        raise AnnotationError(
            f"sharding {_text(tile)} is manual over {part}, a part of an axis of the mesh {mesh}", where=where or None,
            fix="use a mesh in which manual axes are whole axes",
        )  # fmt: skip
    dims = tuple(DimSharding(a) for a in axes[:data])
    unreduced = merge(groups.get("unreduced", []), mesh)
    reduction = tile_reduction(tile) if unreduced else "sum"
    return Sharding(mesh, dims, (), unreduced, reduction, tuple(a.name for a in merge(manual, mesh)))


def _axes_of(digits: Iterable[Range], mesh: Mesh, tile: TileSharding, where: str) -> tuple[AxisRef, ...]:
    """Digits of the position in the mesh as axes and sub-axes."""
    out: list[AxisRef] = []
    for low, high in digits:
        start = 1
        for name, size in mesh.axes:
            end = start * size
            a, b = max(low, start), min(high, end)
            if a < b:
                if a % start or b % a or end % b:
                    raise _does_not_fit(tile, mesh, where)
                out.append(sub_axis(name, a // start, b // start, mesh))
            start = end
    return merge(out, mesh)


def _does_not_fit(tile: TileSharding, mesh: Mesh, where: str) -> AnnotationError:
    return AnnotationError(
        f"sharding {_text(tile)} cannot be expressed over the mesh {mesh}", where=where or None,
        fix="its tiles fix the order of devices: use a mesh of that order, or export the program from JAX to resize it",
    )  # fmt: skip


def _leaves(sharding: AnySharding) -> Iterable[Sharding | TileSharding]:
    items = sharding if isinstance(sharding, tuple) else (sharding,)
    return (s for s in items if s is not None)


def _all_leaves(i: Instruction) -> Sequence[Sharding | TileSharding | None]:
    return i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)


def _where(i: Instruction) -> str:
    return f"%{i.name}" + (f" ({i.source})" if i.source else "")


def _text(tile: TileSharding) -> str:
    if tile.kind != "tiled":
        return "{" + tile.kind + "}"
    shape = "[" + ",".join(map(str, tile.tile)) + "]"
    if tile.devices:
        shown = ",".join(map(str, tile.devices[:16])) + (",..." if len(tile.devices) > 16 else "")
        return f"{{devices={shape}{shown}}}"
    transpose = "T(" + ",".join(map(str, tile.transpose)) + ")" if tile.transpose else ""
    return f"{{devices={shape}<=[{','.join(map(str, tile.reshape))}]{transpose}}}"
