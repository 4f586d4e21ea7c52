"""What computing takes on a machine: as long as its arithmetic or its memory traffic, whichever is more."""

from __future__ import annotations

from shardc.collectives.device import Device
from shardc.hlo.ir import Computation, called_computations
from shardc.hlo.opset import COLLECTIVES
from shardc.hlo.types import DType
from shardc.partitioner.flops import instruction_flops

__all__ = ["compute_seconds", "work_seconds"]

#: Instructions that take no time: names for values, and what is made where it is read.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast", "iota", "after-all")
)


def work_seconds(device: Device, dtype: DType, flops: float, nbytes: float) -> float:
    """Seconds for ``flops`` operations on elements of ``dtype`` that read and write ``nbytes`` of memory."""
    rate = device.flops.get(dtype.name) or device.flops.get("f32") or min(device.flops.values(), default=0.0)
    arithmetic = flops / rate if rate else 0.0
    return max(arithmetic, nbytes / device.memory_bandwidth)


def compute_seconds(device: Device, computation: Computation) -> float:
    """Seconds for everything in ``computation`` but its collectives, nothing fused; loops in it count once."""
    total = 0.0
    for i in computation:
        for role, inner in called_computations(i):
            if role != "to_apply" or i.opcode == "call":
                total += compute_seconds(device, inner)
        if i.opcode in _FREE or i.opcode in COLLECTIVES or i.shape.is_tuple:
            continue
        nbytes = i.shape.nbytes + sum(o.shape.nbytes for o in i.operands)
        if i.opcode in ("dynamic-slice", "slice", "gather"):
            nbytes = 2 * i.shape.nbytes
        elif i.opcode == "dynamic-update-slice":
            nbytes = 2 * i.operands[1].shape.nbytes
        total += work_seconds(device, i.shape.dtype, instruction_flops(i), nbytes)
    return total
