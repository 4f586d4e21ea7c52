"""A ragged all-to-all in ordinary ops: everybody gathers rows, offsets and sizes, and picks the rows sent to it."""

from __future__ import annotations

import numpy as np

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.participants import Groups
from shardc.hlo.ir.types import array_shape

__all__ = ["exchange_ragged"]


def exchange_ragged(i: Instruction, groups: Groups, partitions: int) -> Computation:
    """The program of ``ragged-all-to-all(data, output, starts, sizes, targets, received)``.

    Updates come in the order of their senders; where two write a row, the later one stays.
    """
    p = Operations(i)
    data, output, starts, sizes, targets, _ = p.parameters
    count, rows = len(groups[0]), output.shape.dims[0]
    position = _position(p, groups, partitions)
    starts, sizes, targets = (_addressed(p, x, groups, position) for x in (starts, sizes, targets))
    updates = starts.shape.dims[0]
    grid = (rows, updates)
    row = p.iota("s32", grid, 0)
    first = p.spread(targets, grid, (1,))
    end = p.op("add", first, p.spread(sizes, grid, (1,)))
    inside = p.op("and", p.compare("GE", row, first), p.compare("LT", row, end))
    update = p.op("select", inside, p.iota("s32", grid, 1), p.full(-1, array_shape("s32", *grid)))
    chosen = _maximum(p, update)
    written = p.compare("GE", chosen, p.full(0, chosen.shape))
    safe = p.op("maximum", chosen, p.full(0, chosen.shape))
    begin = _take(p, p.reshape(p.op("subtract", starts, targets), (updates, 1)), safe)
    place = p.op("add", p.iota("s32", (rows,), 0), p.reshape(begin, (rows,)))
    per_sender = p.full(updates // count, chosen.shape)
    sender = p.op("divide", safe, per_sender)
    source = p.op("add", p.op("multiply", sender, p.full(data.shape.dims[0], chosen.shape)), place)
    whole = _gather(p, data, groups)
    moved = _take(p, p.reshape(whole, (count * data.shape.dims[0], *data.shape.dims[1:])), source)
    return p.build(p.op("select", p.spread(written, output.shape.dims, (0,)), moved, output))


def _position(p: Operations, groups: Groups, partitions: int) -> Instruction:
    """This device's place in its group."""
    table = np.zeros(sum(map(len, groups)), np.int32)
    for group in groups:
        table[list(group)] = np.arange(len(group), dtype=np.int32)
    replica, partition = (p.convert(p.op(f"{kind}-id"), "s32") for kind in ("replica", "partition"))
    device = p.op("add", p.op("multiply", replica, p.full(partitions, replica.shape)), partition)
    return p.reshape(p.op("dynamic-slice", p.b.constant(table), device, dynamic_slice_sizes=(1,)), ())


def _addressed(p: Operations, x: Instruction, groups: Groups, position: Instruction) -> Instruction:
    """What every member says of its updates to this device, sender by sender."""
    count = len(groups[0])
    per_peer = x.shape.dims[0] // count
    whole = p.reshape(_gather(p, p.convert(x, "s32"), groups), (count, count, per_peer))
    zero = p.b.constant(0, "s32")
    mine = p.op("dynamic-slice", whole, zero, position, zero, dynamic_slice_sizes=(count, 1, per_peer))
    return p.reshape(mine, (count * per_peer,))


def _gather(p: Operations, x: Instruction, groups: Groups) -> Instruction:
    shape = x.shape.plain.with_dims((len(groups[0]) * x.shape.dims[0], *x.shape.dims[1:]))
    fields = {"replica_groups": ListGroups(groups), "use_global_device_ids": True, "channel_id": 1}
    return p.op("all-gather", x, shape=shape, dimensions=(0,), **fields)


def _maximum(p: Operations, x: Instruction) -> Instruction:
    """The largest of each row."""
    return p.op("reduce", x, p.b.constant(-1, "s32"), dimensions=(1,), to_apply=binary_computation("maximum", "s32"))


def _take(p: Operations, x: Instruction, rows: Instruction) -> Instruction:
    """``x[rows]``; rows outside are clamped."""
    indices = p.reshape(rows, (rows.shape.dims[0], 1))
    rest = x.shape.dims[1:]
    return p.op(
        "gather",
        x,
        indices,
        shape=x.shape.plain.with_dims((rows.shape.dims[0], *rest)),
        offset_dims=tuple(range(1, 1 + len(rest))),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1, *rest),
    )
