"""`read_over` gives the axes of a mesh to a program whose shardings name none."""

from __future__ import annotations

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import TileSharding
from shardc.sharding.notations.device_count import device_count
from shardc.sharding.notations.resize_mesh import resize_mesh
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = ["read_over"]


def read_over(module: Module, mesh: Mesh) -> Module:
    """A module without a mesh over the axes of ``mesh``.

    A mesh of as many devices as the tile shardings have names their axes. Another one resizes the axes that the tiles
    have: those that it names (``axis_0``), or all of them in order where it has as many. Raises `AnnotationError` for
    a mesh that is neither.

    Example: tiles ``devices=[2,2]<=[4]`` over ``data=4,model=2`` lie over ``data`` and ``model``, on 8 devices.
    """
    tiled = any(s.kind == "tiled" for i in module.instructions() for s in _tiles(i.sharding))
    own = convert_to_axes(module).mesh if tiled else None
    if own is None or not own.axes:
        return convert_to_axes(module.with_(mesh=mesh, num_partitions=mesh.size))
    if set(mesh.axis_names) <= set(own.axis_names):
        return resize_mesh(module, mesh)
    if device_count(module) == mesh.size:
        return convert_to_axes(module.with_(mesh=mesh, num_partitions=mesh.size))
    sizes = [size for _, size in own.axes]
    if len(sizes) != len(mesh.axes):
        tiles = "x".join(map(str, sizes))
        raise AnnotationError(
            f"the program's shardings are tiles of {tiles} devices, which cannot be resized to the mesh {mesh}",
            where=module.source_file or None,
            fix=f"give a mesh of {own.size} devices or of {len(sizes)} axes, or export the program with a named mesh",
        )
    named = Mesh(dict(zip(mesh.axis_names, sizes, strict=True)), own.device_ids)
    return resize_mesh(convert_to_axes(module.with_(mesh=named, num_partitions=named.size)), mesh)


def _tiles(sharding: object) -> list[TileSharding]:
    items = sharding if isinstance(sharding, tuple) else (sharding,)
    return [s for s in items if isinstance(s, TileSharding)]
