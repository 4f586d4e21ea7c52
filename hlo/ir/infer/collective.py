"""Shape inference: collectives and point-to-point transfers."""

from __future__ import annotations

from collections.abc import Callable

from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.infer.reduction import reducer_types, tuple_of
from shardc.hlo.ir.infer.rule import (
    Attrs,
    RuleError,
    ShapeRule,
    Shapes,
    fail,
    need_array,
    need_dims,
    shape_required,
    shapes_agree,
)
from shardc.hlo.ir.types import Shape, array_shape, token_shape, tuple_shape

__all__ = ["RULES", "group_size"]


def group_size(attrs: Attrs) -> int | None:
    """Members per group, None where the text means "everybody" (the module knows how many that is)."""
    groups = attrs.get("replica_groups", ListGroups())
    return groups.group_size or None


def _need_operands(shapes: Shapes) -> None:
    if not shapes:
        fail("a collective needs an operand")
    for s in shapes:
        need_array(s)


def _all_reduce(shapes: Shapes, attrs: Attrs) -> Shape:
    _need_operands(shapes)
    reducer_types(attrs, [shapes[0].with_dims(())], [shapes[0].with_dims(())])
    return tuple_of([s.plain for s in shapes])


def _axis(shapes: Shapes, attrs: Attrs) -> int:
    _need_operands(shapes)
    if len(attrs["dimensions"]) != 1:
        fail("a collective works on one dimension")
    for s in shapes:
        need_dims(attrs["dimensions"], s.rank)
    return int(attrs["dimensions"][0])


def _grown(shape: Shape, axis: int, factor: int) -> Shape:
    return shape.with_dims((*shape.dims[:axis], shape.dims[axis] * factor, *shape.dims[axis + 1 :]))


def _need_group(attrs: Attrs) -> int:
    size = group_size(attrs)
    if size is None:
        raise RuleError("the group size is unknown: give the shape or the replica groups")
    return size


def _all_gather(shapes: Shapes, attrs: Attrs) -> Shape:
    axis = _axis(shapes, attrs)
    return tuple_of([_grown(s, axis, _need_group(attrs)) for s in shapes])


def _reduce_scatter(shapes: Shapes, attrs: Attrs) -> Shape:
    axis, size = _axis(shapes, attrs), _need_group(attrs)
    for s in shapes:
        if s.dims[axis] % size:
            fail(f"a dimension of size {s.dims[axis]} does not divide by the {size} members of a group", axis)
    return tuple_of([s.with_dims((*s.dims[:axis], s.dims[axis] // size, *s.dims[axis + 1 :])) for s in shapes])


def _check_ratio(small: Shapes, large: Shapes, attrs: Attrs) -> None:
    """Each of ``large`` is as many times its partner along the dimension as a group has members."""
    axis, size = _axis(small, attrs), group_size(attrs)
    # Groups of replicas that take all their partitions along: the module knows how many.
    joined = bool(attrs.get("channel_id")) and not attrs.get("use_global_device_ids", False)
    for a, b in zip(small, large, strict=True):
        factor = b.dims[axis] // a.dims[axis] if b.rank > axis and a.dims[axis] else size or 1
        fits = size is None or factor == size or (joined and factor % size == 0)
        if not fits or not shapes_agree(_grown(a, axis, factor), b):
            fail(f"{a} and {b} do not fit groups of {size or 'all'} members", axis)


def _parts(shape: Shape, count: int) -> Shapes:
    parts: Shapes = shape.elements if shape.is_tuple else (shape,)
    if len(parts) != count:
        fail(f"{count} operands give {count} results, not {shape}")
    return parts


def _check_all_gather(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    _need_operands(shapes)
    _check_ratio(shapes, _parts(shape, len(shapes)), attrs)


def _check_reduce_scatter(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    _need_operands(shapes)
    _check_ratio(_parts(shape, len(shapes)), shapes, attrs)


def _all_to_all(shapes: Shapes, attrs: Attrs) -> Shape:
    """With ``dimensions`` an array is cut and joined along it; without, operand j of a tuple goes to member j."""
    _need_operands(shapes)
    size = group_size(attrs)
    if attrs.get("dimensions"):
        axis = _axis(shapes, attrs)
        if size is not None and shapes[0].dims[axis] % size:
            fail(f"a dimension of size {shapes[0].dims[axis]} does not divide by the {size} members", axis)
        return tuple_of([s.plain for s in shapes])
    if size is not None and len(shapes) != size:
        fail(f"{len(shapes)} operands for groups of {size} members")
    if any(not shapes_agree(s, shapes[0]) for s in shapes):
        fail("the operands of an all-to-all must have one shape")
    return tuple_shape(*(s.plain for s in shapes))


def _same(shapes: Shapes, attrs: Attrs) -> Shape:
    _need_operands(shapes)
    return tuple_of([s.plain for s in shapes])


def _broadcast(shapes: Shapes, attrs: Attrs) -> Shape:
    """With a dynamic root the last operand says which member's value counts, for each of the others."""
    return _same(shapes[:-1] if attrs.get("has_dynamic_root") else shapes, attrs)


def _permute(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes) == 4 and "slice_sizes" in attrs:
        # (source, target, source offsets, target offsets): slices are sent into a buffer.
        return shapes[1].plain
    _need_operands(shapes)
    return tuple_of([s.plain for s in shapes])


def _start_of(infer: Callable[[Shapes, Attrs], Shape]) -> Callable[[Shapes, Attrs], Shape]:
    """(operands, results), as all-gather-start and collective-permute-start give."""

    def start(shapes: Shapes, attrs: Attrs) -> Shape:
        return tuple_shape(tuple_of([s.plain for s in shapes]), infer(shapes, attrs))

    return start


def _check_all_gather_start(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    if len(shape.elements) < 2:
        fail(f"all-gather-start gives (operands, results), not {shape}")
    _check_all_gather(shapes, attrs, shape.elements[1])


def _check_permute_start(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    inferred = _start_of(_permute)(shapes, attrs)
    if not shapes_agree(inferred, tuple_shape(*shape.elements[:2])):
        fail(f"shape is {shape}, the operands give {inferred}")


def _whole(shapes: Shapes, attrs: Attrs) -> Shape:
    return shapes[0].plain


def _second(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes[0].elements) < 2:
        fail(f"{shapes[0]} is not what the start of a collective gives")
    return shapes[0].elements[1].plain


def _ragged_all_to_all(shapes: Shapes, attrs: Attrs) -> Shape:
    """Rows of data go into an output with as long rows; tables have equally many elements, some for each member."""
    data, output, *tables = (need_array(s) for s in shapes)
    for k, s in enumerate(tables, start=2):
        if s.rank < 1 or not s.dtype.is_integer:
            fail(f"operand {k} holds offsets or sizes, not {s}")
        if s.dims != tables[0].dims:
            fail(f"offsets and sizes differ in number: {tables[0]} and {s}")
    if not data.rank or data.dtype != output.dtype or data.dims[1:] != output.dims[1:]:
        fail(f"rows of {data} do not fit into {output}")
    size = group_size(attrs)
    if size is not None and tables[0].size % size:
        fail(f"{tables[0].size} offsets do not divide by the {size} members of a group")
    return output.plain


def _id(shapes: Shapes, attrs: Attrs) -> Shape:
    return array_shape("u32")


def _send(shapes: Shapes, attrs: Attrs) -> Shape:
    return tuple_shape(shapes[0].plain, array_shape("u32"), token_shape())


def _token(shapes: Shapes, attrs: Attrs) -> Shape:
    return token_shape()


def _recv(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    if len(shape.elements) != 3 or not shape.elements[2].is_token:
        fail(f"recv gives (data, u32[], token), not {shape}")


def _recv_done(shapes: Shapes, attrs: Attrs) -> Shape:
    if len(shapes[0].elements) != 3:
        fail(f"{shapes[0]} is not what recv gives")
    return tuple_shape(shapes[0].elements[0].plain, token_shape())


RULES = {
    "all-reduce": ShapeRule(_all_reduce),
    "all-reduce-start": ShapeRule(_all_reduce),
    "all-reduce-done": ShapeRule(_whole),
    "all-gather": ShapeRule(_all_gather, _check_all_gather),
    "all-gather-start": ShapeRule(_start_of(_all_gather), _check_all_gather_start),
    "all-gather-done": ShapeRule(_second),
    "reduce-scatter": ShapeRule(_reduce_scatter, _check_reduce_scatter),
    "all-to-all": ShapeRule(_all_to_all),
    "ragged-all-to-all": ShapeRule(_ragged_all_to_all),
    "collective-broadcast": ShapeRule(_broadcast),
    "collective-permute": ShapeRule(_permute),
    "collective-permute-start": ShapeRule(_start_of(_permute), _check_permute_start),
    "collective-permute-done": ShapeRule(_second),
    "partition-id": ShapeRule(_id),
    "replica-id": ShapeRule(_id),
    "send": ShapeRule(_send),
    "send-done": ShapeRule(_token),
    "recv": shape_required(_recv),
    "recv-done": ShapeRule(_recv_done),
}
