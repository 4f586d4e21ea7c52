"""NumPy meaning: manual computations (``shard_map``), whose inside runs on the devices of a mesh.

A program with one is evaluated on all devices of its mesh in lock step. Outside, every device holds the whole value;
going in, it keeps its block, and coming out the blocks are put together again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate.interpreter import Interpreter
from shardc.hlo.evaluate.values import Array, Value
from shardc.hlo.ir.custom_calls import MANUAL_AXES
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import Shape

__all__ = ["to_global", "to_local"]

Operands = Sequence[Sequence[Value]]


def to_local(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """Each device's block of each operand, by the sharding that the operand is constrained to."""
    inside = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,) * len(i.operands)
    places = [
        _place(i, o, (o.sharding, _crossed_axes(i, inner, o.sharding)), o.shape, s)
        for o, inner, s in zip(i.operands, inside, _leaves(i), strict=True)
    ]
    blocks: dict[tuple[int, ...], Array] = {}

    def block(device: int, k: int, value: Array) -> Array:
        at = places[k](device)
        if all(o[k] is value for o in operands):
            return blocks.setdefault((k, *at), value[_slices(at, _leaves(i)[k])])
        return value[_slices(at, _leaves(i)[k])]

    out: list[Value] = []
    for device, values in zip(devices, operands, strict=True):
        mine = tuple(block(device, k, v) for k, v in enumerate(values))
        out.append(mine if i.shape.is_tuple else mine[0])
    return out


def to_global(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """The blocks of all devices as one value, by the call's own sharding."""
    shardings = i.leaf_shardings()
    columns = []
    for k, (o, shape) in enumerate(zip(i.operands, _leaves(i), strict=True)):
        column = [v[k] for v in operands]
        place = _place(i, i, (shardings[k], _crossed_axes(i, o.sharding, shardings[k])), shape, o.shape)
        columns.append(_join_blocks(column, [_outer_place(i, shardings[k], d) for d in devices], devices, place, shape))
    return [tuple(row) if i.shape.is_tuple else row[0] for row in zip(*columns, strict=True)]


def _join_blocks(
    column: Sequence[Array],
    groups: Sequence[tuple[int, ...]],
    devices: Sequence[int],
    place: Callable[[int], tuple[int, ...]],
    whole: Shape,
) -> Sequence[Array]:
    """One whole value per group; blocks that several devices of one hold are the same, so the first one's counts."""
    totals: dict[tuple[int, ...], Array] = {}
    written: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for device, group, value in zip(devices, groups, column, strict=True):
        at = place(device)
        if (group, at) not in written:
            total = totals.setdefault(group, np.empty(whole.dims, value.dtype))
            total[tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, value.shape, strict=True))] = value
            written.add((group, at))
    return [totals[g] for g in groups]


def _crossed_axes(i: Instruction, inner: object, outer: object) -> frozenset[str]:
    """The axes that are manual inside only, as the call says, or the shardings on both sides; empty: unknown."""
    told = dict(i.attrs.get("frontend_attributes", ())).get(MANUAL_AXES, "")
    if told or not isinstance(inner, Sharding):
        return frozenset(a for a in told.split(",") if a)
    return frozenset(inner.manual).difference(outer.manual if isinstance(outer, Sharding) else ())


def _outer_place(i: Instruction, sharding: object, device: int) -> tuple[int, ...]:
    """Where a device is along the axes that this computation leaves to the one around it."""
    if not isinstance(sharding, Sharding):
        return ()
    told = dict(i.attrs.get("frontend_attributes", ())).get(MANUAL_AXES, "")
    own = told.split(",") if told else [n for n in sharding.mesh.axis_names if n not in sharding.manual]
    at = sharding.mesh.coordinates(device)
    return tuple(at[name] for name in sharding.mesh.axis_names if name not in own)


def _leaves(i: Instruction) -> tuple[Shape, ...]:
    return tuple(i.shape.leaves())


def _slices(at: Sequence[int], local: Shape) -> tuple[slice, ...]:
    return tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, local.dims, strict=True))


def _place(
    i: Instruction, named: Instruction, given: tuple[object, frozenset[str]], whole: Shape, local: Shape
) -> Callable[[int], tuple[int, ...]]:
    """Device to the position of its block along the axes that ``given`` (a sharding, axes) says are crossed.

    Where they are unknown: along the leading axes of each dimension that together divide it so.
    """
    sharding, crossed = given
    if not isinstance(sharding, Sharding):
        raise UnsupportedError(
            f"{i.attrs['custom_call_target']} needs a sharding over a mesh on %{named.name}, found {sharding}",
            where=i.place,
        )
    mesh, dims = sharding.mesh, []
    for d, (n, part) in enumerate(zip(whole.dims, local.dims, strict=True)):
        axes: list[AxisRef] = []
        ratio = n // part if part else 1
        for axis in sharding.dims[d].axes:
            if math.prod(a.extent(mesh) for a in axes) >= ratio:
                break
            if not crossed or axis.name in crossed:
                axes.append(axis)
        if math.prod(a.extent(mesh) for a in axes) != ratio or part * ratio != n:
            raise UnsupportedError(
                f"{i.attrs['custom_call_target']} between {whole} and {local}: dimension {d} is not split that "
                "way by the "
                f"manual axes of {sharding}",
                where=i.place,
                fix="let the sharding of the whole value name the manual axes that split it into equal parts",
            )
        dims.append(axes)
    return lambda device: tuple(_position(mesh, axes, mesh.coordinates(device)) for axes in dims)


def _position(mesh: Mesh, axes: Sequence[AxisRef], at: Mapping[str, int]) -> int:
    position = 0
    for axis in axes:
        index = at[axis.name]
        if not axis.is_full:
            index = index // (mesh.axis_size(axis.name) // (axis.pre * axis.size)) % axis.size
        position = position * axis.extent(mesh) + index
    return position
