"""Collectives that the program itself has: those inside manual computations, between positions along manual axes.

They go on as they are, on shards along the free axes. Groups and pairs become symbolic where they follow axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.participants import Groups, Pairs, groups_of_devices, pairs_of_devices
from shardc.hlo.ir.reducers import reducer_kind
from shardc.hlo.ir.sharding import AxisRef, TileSharding
from shardc.partitioner.rewrite.body import Body, Handled
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, Refused, nothing
from shardc.partitioner.strategy.values import Tree
from shardc.sharding.notations.tile_assignments import from_tile

__all__ = ["RULES", "axis_groups", "axis_pairs", "named_groups"]

_OUTSIDE = "it names devices, so it belongs to a partitioned program or a manual computation"
_PAIRS = "asynchronous pairs and transfers belong to a program that is already partitioned"
_GLOBAL_IDS = frozenset(("all-reduce", "all-gather", "reduce-scatter"))


def _partition(body: Body, op: Instruction) -> Tree:
    alone = body.context.table.mesh.size == 1  # its program is the per-device one
    inside = alone or body.context.manual or any(s.manual for s in op.leaf_shardings())
    if not inside and (op.attrs.get("channel_id") or op.opcode == "collective-permute"):
        raise UnsupportedError(
            f"{op.opcode} cannot be partitioned: {_OUTSIDE}",
            where=f"%{op.name}" + (f" ({op.source})" if op.source else ""),
            fix="remove it, or give an already partitioned program",
        )
    table = body.context.table
    named = named_groups(op, table.mesh)
    groups = _devices(op, table.mesh) if named is None else ()
    _need_fitting(op, named.group_size if named is not None else len(groups[0]) if groups else 0)
    across = set(table.atoms(_differing(table.mesh, *groups) if named is None else named.axes))
    layouts = [*(body.value(o).layout for o in op.operands), *body.wanted(op)]
    apart = all(across.isdisjoint(x.used) for x in layouts)
    return body.partition_locally(op, _LOCAL if apart else _WHOLE)


def _need_fitting(op: Instruction, members: int) -> None:
    """Shapes of gathers and scatters that were written for groups of another size than ``members``."""
    if op.opcode not in ("all-gather", "reduce-scatter") or len(op.operands) != 1 or not members:
        return
    (dim,) = op.attrs["dimensions"]
    ends = (op.operands[0].shape.dims[dim], op.shape.dims[dim])
    small, large = ends if op.opcode == "all-gather" else ends[::-1]
    if small * members != large:
        raise UnsupportedError(
            f"{op.opcode} of {op.operands[0].shape} to {op.shape} does not fit groups of {members} members",
            where=f"%{op.name}" + (f" ({op.source})" if op.source else ""),
            fix="give replica groups, or use the number of devices that the program was written for",
        )


def _linear(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Moving parts commutes with reducing over other axes, and so does reducing them likewise; but not where a part of
    an operand stays that may be whole."""
    if op.opcode == "ragged-all-to-all":
        return ()
    computation = op.attrs.get("to_apply")
    if computation is not None and reducer_kind(computation) != reduction:
        return ()
    return (tuple(range(len(op.operands))),)


def _emit(site: LocalSite) -> list[Instruction]:
    return site.emit(**_participants(site.op, site.em.table.mesh))


def _participants(op: Instruction, mesh: Mesh) -> dict[str, Any]:
    """The attributes that say who takes part: over axes of ``mesh`` where these say it, else as device numbers."""
    named = named_groups(op, mesh)
    if named is not None:
        return {"replica_groups": named}
    groups = _devices(op, mesh)
    if op.opcode == "collective-permute":
        pairs = tuple((s, t) for s, t in groups)
        return {"source_target_pairs": axis_pairs(mesh, pairs) or ListPairs(pairs)}
    symbolic = axis_groups(mesh, groups)
    if symbolic is not None:
        return {"replica_groups": symbolic}
    return {"replica_groups": ListGroups(groups)} | (
        {"use_global_device_ids": True} if op.opcode in _GLOBAL_IDS else {}
    )


def _devices(op: Instruction, mesh: Mesh) -> Groups:
    """The groups, or the pairs, of an operation as device numbers.

    Without a channel and without groups it is over replicas, of which there is one.
    """
    if op.opcode == "collective-permute":
        return pairs_of_devices(op, mesh.size, 1)
    listed = op.attrs.get("replica_groups", ListGroups()).expand()
    if listed or op.attrs.get("channel_id") or op.attrs.get("use_global_device_ids"):
        return groups_of_devices(op, mesh.size, 1)
    return tuple((d,) for d in range(mesh.size))


def named_groups(op: Instruction, mesh: Mesh) -> AxisGroups | None:
    """The groups of an operation as whole axes of ``mesh``, found without listing devices; None where they are not.

    There is one replica, as in every program over a mesh.
    """
    groups = op.attrs.get("replica_groups", ListGroups())
    if op.opcode == "collective-permute" or mesh.device_ids is not None:
        return None
    if groups == ListGroups():
        everybody = bool(op.attrs.get("channel_id") or op.attrs.get("use_global_device_ids"))
        return AxisGroups(mesh, tuple(AxisRef(n) for n in mesh.axis_names) if everybody else ())
    if isinstance(groups, AxisGroups):
        return groups if groups.mesh == mesh else None
    if not isinstance(groups, IotaGroups) or groups.num_devices != mesh.size or mesh.size == 1:
        return None
    sizes = (groups.num_groups, groups.group_size)
    try:
        found = from_tile(TileSharding("tiled", sizes, (), groups.reshape, groups.transpose), mesh, 2)
    except AnnotationError:
        return None
    axes = () if found is None else found.dims[1].axes
    return AxisGroups(mesh, axes) if all(a.is_full for a in axes) else None


def axis_groups(mesh: Mesh, groups: Groups) -> AxisGroups | None:
    """The axes along which the members of each group differ, if that says all."""
    found = AxisGroups(mesh, _differing(mesh, groups[0])) if groups else None
    return found if found is not None and sorted(found.expand()) == sorted(groups) else None


def axis_pairs(mesh: Mesh, pairs: Pairs) -> AxisPairs | None:
    """One permutation along the axes in which sources and targets differ, if every group has the same."""
    axes = _differing(mesh, *pairs)
    groups = AxisGroups(mesh, axes).expand()
    place = {d: (g, m) for g, members in enumerate(groups) for m, d in enumerate(members)}
    within = tuple(sorted({(place[s][1], place[t][1]) for s, t in pairs}))
    found = AxisPairs(mesh, axes, within)
    return found if axes and sorted(found.expand()) == sorted(pairs) else None


def _differing(mesh: Mesh, *groups: tuple[int, ...]) -> tuple[AxisRef, ...]:
    """The axes in which members of one group have other coordinates, in the mesh's order."""
    grid = mesh.grid()
    places = np.zeros((grid.size, grid.ndim), np.int64)
    places[grid.reshape(-1)] = np.indices(grid.shape).reshape(grid.ndim, grid.size).T
    differ = np.zeros(grid.ndim, bool)
    for group in groups:
        at = places[[d for d in group if d < grid.size]]
        differ |= (at != at[:1]).any(axis=0)
    return tuple(AxisRef(name) for name, d in zip(mesh.axis_names, differ, strict=True) if d)


_LOCAL = Local("between positions along manual axes, on shards along the others", _emit, linear=_linear)
_WHOLE = Local("whole, where it crosses the axes that split the operand", _emit, usable=nothing, linear=_linear)
_ROW = Handled(_LOCAL.summary + "; inside manual computations", _partition)

RULES: Mapping[str, PartitionRow] = {
    **{o: Refused(_PAIRS) for o, op in OPS.items() if op.family == "collective"},
    **dict.fromkeys(
        ("all-reduce", "collective-permute", "collective-broadcast", "all-gather", "reduce-scatter", "all-to-all"), _ROW
    ),
    "ragged-all-to-all": _ROW,
    **dict.fromkeys(("partition-id", "replica-id"), Local("every device its own")),
}
