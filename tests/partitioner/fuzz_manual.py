"""A step of a growing program that is written for one position along some axes of the mesh, as in `jax.shard_map`."""

from __future__ import annotations

from collections.abc import Callable

from fuzz_grow import Grown

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.custom_calls import GLOBAL_TO_LOCAL, LOCAL_TO_GLOBAL
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Instruction, Metadata
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import array_shape

__all__ = ["INSIDE", "manual"]

#: Marks what is inside: only the program says how that lies.
INSIDE = Metadata(op_name="manual")

Steps = Callable[[Grown, Instruction, int], Instruction]


def manual(g: Grown, x: Instruction, steps: Steps) -> None:
    """Cuts a value along one axis, computes on the parts with collectives between them, and puts them together."""
    mesh = g.mesh
    if mesh is None or g.inner:
        return
    axis = g.r.choice(mesh.axis_names)
    size = mesh.axis_size(axis)
    if size == 1:
        return
    fitting = [d for d, n in enumerate(x.shape.dims) if n % size == 0]
    if not fitting:
        x = g.fresh((*x.shape.dims[:1], size * g.r.randint(1, 3)))
        fitting = [x.shape.rank - 1]
    d = g.r.choice(fitting)
    dims = list(x.shape.dims)
    dims[d] //= size
    held = _split(mesh, x.shape.rank, d, axis)
    border = {"frontend_attributes": (("xla.sdy.manual_axes", axis),)}
    whole = g.b.add("custom-call", x, shape=x.shape, custom_call_target="Sharding", sharding=held)
    local = g.b.add("custom-call", whole, shape=array_shape("f32", *dims), custom_call_target=GLOBAL_TO_LOCAL, **border)
    inner = Grown(g.r, inner=True, depth=g.depth + 1, sizes=g.sizes)
    inner.b, g.b.metadata = g.b, INSIDE
    part = steps(inner, local, g.r.randint(0, 3))
    part = _collective(g, part, mesh, axis)
    part = steps(inner, part, g.r.randint(0, 2))
    shape = list(part.shape.dims)
    e = g.r.randrange(len(shape))
    shape[e] *= size
    g.b.metadata = None
    out = g.b.add(
        "custom-call", part, shape=array_shape("f32", *shape), custom_call_target=LOCAL_TO_GLOBAL,
        sharding=_split(mesh, len(shape), e, axis), **border,
    )  # fmt: skip
    g.keep(out, 4)


def _split(mesh: Mesh, rank: int, d: int, axis: str) -> Sharding:
    parts = (DimSharding((AxisRef(axis),), False) if e == d else DimSharding((), False) for e in range(rank))
    return Sharding(mesh, tuple(parts))


def _collective(g: Grown, x: Instruction, mesh: Mesh, axis: str) -> Instruction:
    """What the positions along the axis send each other, in the shape of ``x``."""
    size = mesh.axis_size(axis)
    groups = AxisGroups(mesh, (AxisRef(axis),))
    common = {"channel_id": 1 + len(g.b.instructions), "use_global_device_ids": True}
    kind = g.r.choice(["all-reduce", "max", "collective-permute", "all-gather", "reduce-scatter", "position", "none"])
    if kind in ("all-reduce", "max"):
        body = binary_computation("add" if kind == "all-reduce" else "maximum", "f32")
        return _clamped(g, g.b.add("all-reduce", x, replica_groups=groups, to_apply=body, **common))
    if kind == "collective-permute":
        step = g.r.randrange(size)
        pairs = tuple((i, (i + step) % size) for i in range(size))
        ring = AxisPairs(mesh, (AxisRef(axis),), pairs)
        return g.b.add("collective-permute", x, source_target_pairs=ring, channel_id=common["channel_id"])
    d = g.r.randrange(x.shape.rank)
    if kind == "all-gather":
        dims = [n * size if e == d else n for e, n in enumerate(x.shape.dims)]
        made = g.b.add(
            "all-gather", x, shape=array_shape("f32", *dims), dimensions=(d,), replica_groups=groups, **common
        )
        bounds = tuple((0, n, size if e == d else 1) for e, n in enumerate(dims))
        return g.b.add("slice", made, slice=bounds)
    if kind == "reduce-scatter" and x.shape.dims[d] % size == 0:
        dims = [n // size if e == d else n for e, n in enumerate(x.shape.dims)]
        made = g.b.add(
            "reduce-scatter", x, shape=array_shape("f32", *dims), dimensions=(d,), replica_groups=groups,
            to_apply=binary_computation("add", "f32"), **common,
        )  # fmt: skip
        again = g.b.add("concatenate", *[made] * size, dimensions=(d,))
        return _clamped(g, again)
    if kind == "position" and mesh.device_ids is None:
        stride = mesh.size
        for name in mesh.axis_names[: mesh.axis_names.index(axis) + 1]:
            stride //= mesh.axis_size(name)
        device = g.b.add("partition-id", shape=array_shape("u32"))
        row = g.b.add("divide", device, g.b.constant(stride, "u32"))
        value = g.b.add("remainder", row, g.b.constant(size, "u32"))
        value = g.b.add("convert", value, shape=array_shape("f32"))
        return g.b.add("add", x, g.b.add("broadcast", value, shape=x.shape, dimensions=()))
    return x


def _clamped(g: Grown, x: Instruction) -> Instruction:
    return g.b.add("clamp", g.b.constant(-8.0, "f32"), x, g.b.constant(8.0, "f32"))
