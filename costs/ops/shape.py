"""What movement costs: no arithmetic, and often no time of its own."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.costs.ops.op_cost import FREE, HostRates, OpCost, array_sizes, no_seconds
from shardc.hlo.ir.ir import Instruction

__all__ = ["COSTS"]


def _concatenate(op: Instruction, host: HostRates) -> float:
    """Along the last dimension, or before one of a single element, runs are short: a rate of its own."""
    size, dtype = max(array_sizes(op), default=0), op.shape.dtype
    if op.shape.dims[op.attrs["dimensions"][0] + 1 :] in ((), (1,)):
        return size * host.of("concatenate-last", dtype, ("concatenate", 1.0))
    return size * host.of("concatenate", dtype)


_RENAMES = OpCost(free=True, renames=True, host=no_seconds)

COSTS: Mapping[str, OpCost] = {
    "bitcast": _RENAMES,
    "broadcast": FREE,
    "concatenate": OpCost(host=_concatenate),
    "constant": FREE,
    "dynamic-reshape": OpCost(),
    "get-dimension-size": OpCost(),
    "iota": FREE,
    "pad": OpCost(host=no_seconds),
    "reshape": _RENAMES,
    "reverse": OpCost(),
    "set-dimension-size": OpCost(),
    "slice": OpCost(samples=True, host=no_seconds),
    "transpose": OpCost(),
}
