"""Canonicalise collectives: whole contiguous buffers, the group dimension leading (see `collectives/call/call.py`).

What a collective does to inner dimensions becomes ordinary transposes and reshapes around it, which fuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.groups import IotaGroups, ListGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable, make, reshape, transpose
from shardc.hlo.ir.types import array_shape, tuple_shape

__all__ = ["CanonicaliseCollectives", "group_size", "plain_reduction", "reduction_of", "with_groups"]

_MONOIDS = frozenset({"add", "maximum", "minimum", "multiply", "and", "or"})


@dataclass(frozen=True, slots=True)
class CanonicaliseCollectives:
    """Rewrite every collective into the leading, contiguous form; drop those over groups of one."""

    name: str = "canonicalise-collectives"
    why: str = "transports move whole buffers and know nothing of dimensions"

    def run(self, module: Module) -> Module:
        devices = module.num_partitions * module.replica_count

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            rule = _RULES.get(old.opcode)
            if rule is None:
                return None
            new = old.replace(operands=operands)
            size = group_size(new, devices)
            return rule(with_groups(new, size), size)

        after = rebuild_module(module, change)
        return keep_reachable(after, after.entry)


def with_groups(i: Instruction, size: int) -> Instruction:
    """Groups that the text leaves out, or leaves empty, are one group of all devices."""
    groups = i.attrs.get("replica_groups")
    if i.opcode == "collective-permute" or (groups is not None and groups.group_size):
        return i
    return i.replace(attrs=MappingProxyType({**i.attrs, "replica_groups": IotaGroups(1, size, (size,))}))


def group_size(i: Instruction, devices: int) -> int:
    """Members of a group; shapes tell where the text leaves the groups out."""
    if i.opcode in ("all-gather", "reduce-scatter"):
        (d,) = i.attrs["dimensions"]
        before, after = i.operands[0].shape.dims[d], next(i.shape.leaves()).dims[d]
        if before and after:
            return int(max(before, after) // min(before, after))
    groups = i.attrs.get("replica_groups", ListGroups())
    return groups.group_size or devices


def plain_reduction(i: Instruction) -> str:
    """The monoid of a reducing collective: ``add``, ``maximum``, ...; empty for any other reducer."""
    computation: Computation = i.attrs["to_apply"]
    root = computation.root
    plain = root.opcode in _MONOIDS and set(root.operands) == set(computation.parameters) and len(root.operands) == 2
    return root.opcode if plain else ""


def reduction_of(i: Instruction) -> str:
    """The same where `ExpandReducers` left no other."""
    reduction = plain_reduction(i)
    if not reduction:
        raise UnsupportedError(
            f"{i.opcode} with a reduction that is not one of {', '.join(sorted(_MONOIDS))}",
            where=f"%{i.name}, computation %{i.attrs['to_apply'].name}",
            fix="use a plain sum, product, maximum, minimum, and, or as the reduction",
        )
    return reduction


def _as_operands(i: Instruction) -> Instruction:
    """The value of a collective over groups of one."""
    return make("tuple", i.shape, i.operands, i) if i.shape.is_tuple else i.operands[0]


def _leading(
    i: Instruction,
    leading: int,
    before: Callable[[Instruction], Instruction],
    after: Callable[[Instruction, Instruction], Instruction],
) -> Instruction:
    """``i`` along dimension 0, whose size becomes ``leading``, on what ``before`` makes of each operand;
    ``after(result, operand)`` gives the value. Several operands stay one collective."""
    operands = tuple(before(o) for o in i.operands)
    shapes = [o.shape.with_dims((leading, *o.shape.dims[1:])) for o in operands]
    attrs = MappingProxyType({**i.attrs, "dimensions": (0,)})
    if not i.shape.is_tuple:
        return after(i.replace(operands=operands, shape=shapes[0], attrs=attrs), i.operands[0])
    whole = i.replace(operands=operands, shape=tuple_shape(*shapes), attrs=attrs)
    parts = [make("get-tuple-element", s, (whole,), i, index=n) for n, s in enumerate(shapes)]
    return make("tuple", i.shape, [after(p, o) for p, o in zip(parts, i.operands, strict=True)], i)


def _all_reduce(i: Instruction, group: int) -> Instruction:
    reduction_of(i)
    return _as_operands(i) if group == 1 else i


def _all_gather(i: Instruction, group: int) -> Instruction:
    (d,) = i.attrs["dimensions"]
    if group == 1:
        return _as_operands(i)

    def after(gathered: Instruction, operand: Instruction) -> Instruction:
        dims = operand.shape.dims
        result = (*dims[:d], dims[d] * group, *dims[d + 1 :])
        return reshape(_group_back(gathered, d, i), result, i)

    return _leading(i, group, lambda o: reshape(o, (1, *o.shape.dims), i), after)


def _group_back(value: Instruction, d: int, like: Instruction) -> Instruction:
    """The leading group dimension moved in front of dimension ``d`` of what follows it."""
    if math.prod(value.shape.dims[1 : d + 1]) == 1:
        return value
    return transpose(value, (*range(1, d + 1), 0, *range(d + 1, value.shape.rank)), like)


def _reduce_scatter(i: Instruction, group: int) -> Instruction:
    reduction_of(i)
    (d,) = i.attrs["dimensions"]
    if group == 1:
        return _as_operands(i)

    def after(scattered: Instruction, operand: Instruction) -> Instruction:
        dims = operand.shape.dims
        return reshape(scattered, (*dims[:d], dims[d] // group, *dims[d + 1 :]), i)

    return _leading(i, 1, lambda o: _chunks_first(o, d, group, i), after)


def _chunks_first(operand: Instruction, d: int, group: int, like: Instruction) -> Instruction:
    """Dimension ``d`` cut into ``group`` chunks, the chunk number as the leading dimension."""
    dims = operand.shape.dims
    split = (*dims[:d], group, dims[d] // group, *dims[d + 1 :])
    front = (d, *(k for k in range(len(split)) if k != d))
    if math.prod(dims[:d]) == 1:
        return reshape(operand, tuple(split[k] for k in front), like)
    return transpose(reshape(operand, split, like), front, like)


def _all_to_all(i: Instruction, group: int) -> Instruction:
    if i.shape.is_tuple:
        return _all_to_all_of_tuple(i)
    if group == 1:
        return i.operands[0]
    (d,) = i.attrs["dimensions"]
    return _leading(
        i,
        group,
        lambda o: _chunks_first(o, d, group, i),
        lambda exchanged, o: reshape(_group_back(exchanged, d, i), o.shape.dims, i),
    )


def _all_to_all_of_tuple(i: Instruction) -> Instruction:
    """One operand per member: operand j goes to member j, result j came from member j."""
    count = len(i.operands)
    part = i.operands[0].shape
    if count == 1:
        return make("tuple", i.shape, i.operands, i)
    rows = [reshape(o, (1, *part.dims), i) for o in i.operands]
    whole = part.with_dims((count, *part.dims))
    packed = make("concatenate", whole, rows, i, dimensions=(0,))
    attrs = {**i.attrs, "dimensions": (0,)}
    exchanged = i.replace(operands=(packed,), shape=whole, attrs=attrs)
    return make("tuple", i.shape, [_row(exchanged, n, part.dims, i) for n in range(count)], i)


def _row(whole: Instruction, n: int, dims: tuple[int, ...], like: Instruction) -> Instruction:
    bounds = ((n, n + 1, 1), *((0, d, 1) for d in dims))
    part = make("slice", whole.shape.with_dims((1, *dims)), (whole,), like, slice=bounds)
    return reshape(part, dims, like)


def _collective_broadcast(i: Instruction, group: int) -> Instruction:
    """Everybody gathers, and takes the first member's part."""
    attrs = {k: v for k, v in i.attrs.items() if k in ("replica_groups", "channel_id")}
    return _leading(
        i.replace(opcode="all-gather", attrs=attrs),
        group,
        lambda o: reshape(o, (1, *o.shape.dims), i),
        lambda gathered, o: _row(gathered, 0, o.shape.dims, i),
    )


def _ragged_all_to_all(i: Instruction, group: int) -> Instruction:
    """Offsets and sizes become rows of s64."""
    data, output, *tables = i.operands
    wide = array_shape("s64", tables[0].shape.size)

    def widened(table: Instruction) -> Instruction:
        flat = reshape(table, wide.dims, i)
        return flat if flat.shape.dtype == wide.dtype else make("convert", wide, (flat,), i)

    return i.replace(operands=(data, output, *map(widened, tables)))


_RULES: Mapping[str, Callable[[Instruction, int], Instruction]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-broadcast": _collective_broadcast,
    "ragged-all-to-all": _ragged_all_to_all,
}
