"""A program that somebody else has partitioned: recognised, and given what running it needs.

XLA's dumps behind its SPMD partitioner hold the per-device program. Its entry parameters may still tell how the global
arrays lie; nothing else has a sharding, and collectives speak about devices.
"""

from __future__ import annotations

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.custom_calls import ENTER_MANUAL
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.participants import transfer_pairs
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = ["adopt", "is_partitioned"]

#: What XLA's partitioner appends to the name of the computation that it writes.
_SUFFIX = "_spmd"


def is_partitioned(module: Module) -> bool:
    """Whether this is the program of one device of several, as its text shows.

    It is when every value is manual, or when XLA's partitioner named the entry. It is also when it has collectives over
    the devices of the mesh, while only entry parameters carry shardings and nothing enters a manual computation.
    """
    if module.partitioned:
        return True
    if module.num_partitions < 2:
        return False
    inside = [i for c in reachable_computations(module.entry) for i in c]
    if any(i.attrs.get("custom_call_target") in ENTER_MANUAL for i in inside):
        return False
    if module.entry.name.endswith(_SUFFIX):
        return True
    annotated = any(i.sharding is not None and i not in module.parameters for i in inside)
    return not annotated and any(map(_speaks_of_devices, inside))


def _speaks_of_devices(i: Instruction) -> bool:
    if i.opcode == "partition-id" or (i.opcode in ("send", "recv") and transfer_pairs(i) is not None):
        return True
    return i.opcode in COLLECTIVES and bool(i.attrs.get("channel_id") or i.attrs.get("use_global_device_ids"))


def adopt(module: Module) -> Module:
    """A program that `is_partitioned` in the form that `shardc.partitioner.partition` gives, otherwise unchanged.

    A parameter with a sharding is that part of a global array. Of other parameters, and of results, every device has
    its own, and the global array holds them one after another in its first dimension; scalars are the same everywhere.
    """
    if "global_parameters" in module.attrs or not is_partitioned(module):
        return module
    placed = convert_to_axes(_only_parameters_sharded(module))
    mesh = placed.mesh
    assert mesh is not None
    root = placed.entry.root

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode == "parameter":
            return old.replace(sharding=_layout(old.sharding, old.shape, mesh))
        return old.replace(operands=operands, sharding=_layout(None, old.shape, mesh)) if old is root else None

    entry = rebuild_computation(placed.entry, change)
    attrs = dict(module.attrs)
    attrs["global_parameters"] = tuple(_global(p) for p in entry.parameters)
    attrs["global_results"] = tuple(_global(entry.root).leaves())
    others = (c for c in placed.computations if c is not placed.entry)
    return placed.with_(computations=(*others, entry), entry=entry, partitioned=True, attrs=attrs)


def _only_parameters_sharded(module: Module) -> Module:
    parameters = set(module.parameters)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in parameters or old.sharding is None:
            return None
        return old.replace(operands=operands, sharding=None)

    return rebuild_module(module, change)


def _layout(sharding: AnySharding, shape: Shape, mesh: Mesh) -> AnySharding:
    """A sharding per leaf: the given one where it says how data lies, else the devices' parts one after another."""
    leaves = list(shape.leaves())
    given = sharding if isinstance(sharding, tuple) else (sharding,) * len(leaves)
    everywhere = tuple(AxisRef(n) for n in mesh.axis_names)

    def one(s: Sharding | TileSharding | None, leaf: Shape) -> Sharding:
        if isinstance(s, Sharding) and not s.manual and not s.unreduced and not s.mesh.is_maximal:
            return s
        dims = [DimSharding() for _ in range(leaf.rank)]
        if dims:
            dims[0] = DimSharding(everywhere)
        return Sharding(mesh, tuple(dims))

    placed = tuple(one(s, leaf) for s, leaf in zip(given, leaves, strict=True))
    return placed if shape.is_tuple else placed[0]


def _global(i: Instruction) -> Shape:
    """The shape of the whole value, of which the instruction is one device's part."""
    leaves = iter(i.leaf_shardings())

    def whole(shape: Shape) -> Shape:
        if shape.is_tuple:
            return tuple_shape(*map(whole, shape.elements))
        parts = next(leaves).num_shards()
        return array_shape(shape.dtype, *(d * k for d, k in zip(shape.dims, parts, strict=True)))

    return whole(i.shape)
