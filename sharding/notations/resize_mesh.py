"""`resize_mesh` gives a program the same mesh axes with other sizes."""

from __future__ import annotations

from dataclasses import replace

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.custom_calls import ENTER_MANUAL, LEAVE_MANUAL
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, Sharding, TileSharding
from shardc.sharding.axes.sub_axes import check_axes
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = ["manual_border", "resize_mesh"]

_MANUAL = ENTER_MANUAL | LEAVE_MANUAL


def resize_mesh(module: Module, mesh: Mesh) -> Module:
    """The module over a mesh whose axes have the sizes of ``mesh``.

    Axes of the program that ``mesh`` does not name keep their size; new axes are added (after the program's own,
    unless ``mesh`` names all of those, when it is taken as it is). A program without a mesh gets ``mesh``. Raises
    `AnnotationError` where a sub-axis does not fit the new size, `UnsupportedError` for manual computations, whose
    shapes are baked in.
    """
    module = convert_to_axes(module)
    old = module.mesh
    if old is None or not old.axes:
        return module.with_(mesh=mesh, num_partitions=mesh.size)
    target = _resize(old, mesh)
    if target == old:
        return module
    border = manual_border(module)
    if border is not None:
        raise UnsupportedError(
            "a program with manual computations cannot be resized: their shapes are for one mesh",
            where=f"%{border.name}" + (f" ({border.source})" if border.source else ""),
            fix=f"use its own mesh, {old}",
        )

    def change(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        new = _move_sharding(i.sharding, old, target, i.name)
        return None if new is i.sharding else i.replace(operands=operands, sharding=new)

    return rebuild_module(module, change).with_(mesh=target, num_partitions=target.size)


def manual_border(module: Module) -> Instruction | None:
    """Where the first manual computation (``shard_map``) of ``module`` begins or ends, if it has any."""
    calls = (i for i in module.instructions() if i.opcode == "custom-call")
    return next((i for i in calls if i.attrs.get("custom_call_target") in _MANUAL), None)


def _resize(old: Mesh, wanted: Mesh) -> Mesh:
    if set(old.axis_names) <= set(wanted.axis_names):
        return wanted
    sizes = {**old.shape, **wanted.shape}
    if sizes == old.shape:
        return old
    return Mesh(sizes, name=old.name)


def _move_sharding(sharding: AnySharding, old: Mesh, target: Mesh, name: str) -> AnySharding:
    if isinstance(sharding, tuple):
        new = tuple(_move_leaf(s, old, target, name) for s in sharding)
        return sharding if all(a is b for a, b in zip(new, sharding, strict=True)) else new
    return _move_leaf(sharding, old, target, name)


def _move_leaf(
    sharding: Sharding | TileSharding | None, old: Mesh, target: Mesh, name: str
) -> Sharding | TileSharding | None:
    if not isinstance(sharding, Sharding) or sharding.mesh != old:
        return sharding
    if sharding.manual:
        raise AnnotationError(f"the sharding of %{name} is manual and cannot be resized")
    new = replace(sharding, mesh=target)
    check_axes(new, f"%{name}")
    return new
