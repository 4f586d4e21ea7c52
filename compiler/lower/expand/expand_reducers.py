"""Expand reducers: collectives that reduce by anything but a plain sum, product, maximum, minimum, and, or.

Transports know those six. For any other computation the members' operands are gathered (exchanged, where everybody
keeps a chunk), and every device combines them itself by the same tree over positions: neighbours level by level, an odd
last one moves up. Instructions grow with the logarithm of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shardc.collectives.call.reduction import supports_reduction
from shardc.compiler.lower.expand.canonicalise_collectives import group_size, plain_reduction, with_groups
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable, make, reshape
from shardc.hlo.ir.types import tuple_shape

__all__ = ["ExpandReducers"]


@dataclass(frozen=True, slots=True)
class ExpandReducers:
    """Collectives with reductions of the program's own gather, and reduce on each device."""

    name: str = "expand-reducers"
    why: str = "transports know sums, products, maxima, minima, and, or"

    def run(self, module: Module) -> Module:
        devices = module.num_partitions * module.replica_count

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            rule = _RULES.get(old.opcode)
            if rule is None or _is_known(old):
                return None
            new = old.replace(operands=operands)
            size = group_size(new, devices)
            return rule(with_groups(new, size), size)

        if all(i.opcode not in _RULES or _is_known(i) for i in module.instructions()):
            return module
        after = rebuild_module(module, change)
        return keep_reachable(after, after.entry)


def _is_known(i: Instruction) -> bool:
    reduction = plain_reduction(i)
    return bool(reduction) and all(supports_reduction(reduction, o.shape.dtype) for o in i.operands)


def _exchanged(
    i: Instruction, opcode: str, dimension: int, times: int, operands: list[Instruction]
) -> list[Instruction]:
    """What another collective of the same groups makes of each operand, ``times`` as long along ``dimension``."""
    attrs = {k: v for k, v in i.attrs.items() if k in ("replica_groups", "channel_id")}
    shapes = []
    for o in operands:
        dims = o.shape.dims
        shapes.append(o.shape.with_dims((*dims[:dimension], dims[dimension] * times, *dims[dimension + 1 :])))
    attrs = {**attrs, "dimensions": (dimension,)}
    if len(operands) == 1:
        return [make(opcode, shapes[0], operands, i, **attrs)]
    whole = make(opcode, tuple_shape(*shapes), operands, i, **attrs)
    return [make("get-tuple-element", s, (whole,), i, index=n) for n, s in enumerate(shapes)]


def _results(i: Instruction, values: list[Instruction]) -> Instruction:
    return make("tuple", i.shape, values, i) if i.shape.is_tuple else values[0]


def _all_reduce(i: Instruction, size: int) -> Instruction:
    if size == 1:
        return _results(i, list(i.operands))
    rows = _exchanged(i, "all-gather", 0, size, [reshape(o, (1, *o.shape.dims), i) for o in i.operands])
    folded = [_fold(r, 0, i) for r in rows]
    return _results(i, [reshape(f, o.shape.dims, i) for f, o in zip(folded, i.operands, strict=True)])


def _reduce_scatter(i: Instruction, size: int) -> Instruction:
    """Chunk j of everybody's operand meets at member j."""
    if size == 1:
        return _results(i, list(i.operands))
    (d,) = i.attrs["dimensions"]
    values = []
    for o in i.operands:  # an all-to-all of several operands means something else
        (exchanged,) = _exchanged(i, "all-to-all", d, 1, [o])
        dims = o.shape.dims
        chunks = reshape(exchanged, (*dims[:d], size, dims[d] // size, *dims[d + 1 :]), i)
        values.append(reshape(_fold(chunks, d, i), (*dims[:d], dims[d] // size, *dims[d + 1 :]), i))
    return _results(i, values)


def _fold(rows: Instruction, axis: int, like: Instruction) -> Instruction:
    """``rows`` along ``axis`` combined by the reduction of ``like``; that dimension becomes 1."""
    body: Computation = like.attrs["to_apply"]
    while (count := rows.shape.dims[axis]) > 1:
        pairs = count // 2
        first, second = (_every(rows, axis, start, 2 * pairs, 2, like) for start in (0, 1))
        dimensions = tuple(range(rows.shape.rank))
        combined = make("map", first.shape, (first, second), like, dimensions=dimensions, to_apply=body)
        if count % 2:
            dims = (*rows.shape.dims[:axis], pairs + 1, *rows.shape.dims[axis + 1 :])
            last = _every(rows, axis, count - 1, count, 1, like)
            parts = (combined, last)
            combined = make("concatenate", rows.shape.with_dims(dims), parts, like, dimensions=(axis,))
        rows = combined
    return rows


def _every(value: Instruction, axis: int, start: int, stop: int, step: int, like: Instruction) -> Instruction:
    bounds = [(0, d, 1) for d in value.shape.dims]
    bounds[axis] = (start, stop, step)
    dims = tuple(-(-(b - a) // s) for a, b, s in bounds)
    return make("slice", value.shape.with_dims(dims), (value,), like, slice=tuple(bounds))


_RULES: Mapping[str, Callable[[Instruction, int], Instruction]] = MappingProxyType(
    {"all-reduce": _all_reduce, "reduce-scatter": _reduce_scatter}
)
