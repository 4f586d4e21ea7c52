"""What reductions and orders cost: a reduction combines once per element read, a sort does the comparisons of a merge
sort in passes over its data by the bytes of its keys."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardc.costs.ops.op_cost import HostRates, OpCost, body_steps, log2_ceiling, no_seconds, per_flop
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sort_keys import sort_keys
from shardc.hlo.ir.types import DTYPES

__all__ = ["COSTS", "topk_flops"]

#: Passes over the data of a sort whose comparator has no keys, and of a top-k, on a device.
_SORT_PASSES = 4
#: What a merge of two runs takes on a host, where a pass by a byte of the key takes one.
_MERGE = 2.5


def _reduce(op: Instruction) -> int:
    return op.operands[0].shape.size * body_steps(op)


def _sort(op: Instruction) -> int:
    """Comparisons of a merge sort."""
    shape = op.operands[0].shape
    return shape.size * log2_ceiling(shape.dims[op.attrs["dimensions"][0]])


def topk_flops(op: Instruction) -> int:
    """Comparisons when a heap of k elements is kept."""
    shape = op.operands[0].shape
    k = next(op.shape.leaves()).dims[-1]
    return shape.size * max(1, log2_ceiling(k))


def _reduce_on_host(op: Instruction, host: HostRates) -> float:
    """By the dimensions that go: the last one, others, or all."""
    shape = op.operands[0].shape
    if not shape.is_array or not shape.size:
        return 0.0
    gone = set(op.attrs["dimensions"])
    long = [d for d, n in enumerate(shape.dims) if n > 1]
    left = [d for d in long if d not in gone]
    kind = "reduce-all" if not left else "reduce-rows" if long and long[-1] in gone else "reduce-columns"
    steps = [x for x in op.attrs.get("to_apply", ()) if host.table[x.opcode].host is not no_seconds]
    # Sums are what was measured; what else is done to each element comes on top.
    other = sum(host.of(x.opcode, x.shape.dtype) for x in steps if x.opcode != "add")
    inputs = max(1, len(op.operands) // 2)
    rows = shape.size // shape.dims[long[-1]] if kind == "reduce-rows" else 0
    row = host.rates.operations.get("row f32", 0.0)
    return inputs * (shape.size * host.of(kind, shape.dtype) + rows * row) + shape.size * other


def _key_bytes(op: Instruction) -> int | None:
    """The bytes that a radix sort goes by; None for comparators of other kinds."""
    keys = sort_keys(op.attrs["to_apply"])
    return None if keys is None else sum(k.dtype.nbytes for k in keys)


def _sort_passes(op: Instruction) -> int:
    return _key_bytes(op) or _SORT_PASSES


def _sort_on_host(op: Instruction, host: HostRates) -> float:
    """By passes over bytes of keys, each of which is what was measured of f32; or by merges."""
    (dim,) = op.attrs["dimensions"]
    shape = op.operands[0].shape
    passes = _key_bytes(op) or _MERGE * max(1.0, math.log2(max(2, shape.dims[dim])))
    return shape.size * passes * host.of(op.opcode, DTYPES["f32"])


COSTS: Mapping[str, OpCost] = {
    "reduce": OpCost(_reduce, host=_reduce_on_host),
    "scan": OpCost(_reduce, host=per_flop),
    "sort": OpCost(_sort, launches=_sort_passes, passes=_sort_passes, host=_sort_on_host),
    "topk": OpCost(topk_flops, launches=lambda op: _SORT_PASSES, passes=lambda op: _SORT_PASSES, host=per_flop),
}
