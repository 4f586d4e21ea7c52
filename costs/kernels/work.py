"""The work of instructions, alone or fused, as the kernel model takes it: their rows of the table of costs, summed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shardc.costs.kernels.kernel_model import KernelWork, busy_seconds
from shardc.costs.kernels.traffic import Traffic, instruction_traffic
from shardc.costs.machines.device import Device
from shardc.costs.ops.op_cost import MatrixProduct
from shardc.costs.ops.table import OP_COSTS
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["compute_seconds", "instruction_work"]


def compute_seconds(device: Device, computation: Computation) -> float:
    """Seconds for everything in ``computation`` but its collectives, nothing fused and no pause between kernels;
    loops in it count once."""
    total = 0.0
    for i in computation:
        for role, inner in called_computations(i):
            if role != "to_apply" or i.opcode == "call":
                total += compute_seconds(device, inner)
        if OP_COSTS[i.opcode].free or i.opcode in COLLECTIVES or i.shape.is_tuple:
            continue
        new = i.operands[1] if i.opcode == "dynamic-update-slice" else None
        total += busy_seconds(device, instruction_work(i, instruction_traffic(i, new)))
    return total


def instruction_work(i: Instruction, traffic: Traffic) -> KernelWork:
    """The work of one kernel for ``i``, a fusion or an operation of its own, that moves ``traffic``.

    Example: a fusion of a product of f32[8,16] and f32[16,4] and its exponential has one `MatrixProduct` and 32 special
    operations.
    """
    inside: Iterable[Instruction] = i.attrs["calls"] if i.opcode == "fusion" else (i,)
    products: list[MatrixProduct] = []
    operations: Counter[str] = Counter()
    rows: list[tuple[int, int]] = []
    flops, launches, passes = 0, 1, 1
    after: set[Instruction] = set()
    chained = False
    for op in inside:
        cost = OP_COSTS[op.opcode]
        count, made = cost.flops(op), cost.products(op)
        flops += count
        products.extend(made)
        follows = not after.isdisjoint(op.operands)
        chained = chained or (follows and bool(made))
        if follows or made:
            after.add(op)
        if not made:
            operations.update(cost.vector(op, count))
        rows.extend(cost.rows(op))
        launches, passes = max(launches, cost.launches(op)), max(passes, cost.passes(op))
    return KernelWork(
        tuple(products),
        tuple(sorted(operations.items())),
        traffic.read * passes,
        traffic.written * passes,
        _dtype(i),
        tuple(rows),
        launches,
        flops,
        chained,
    )


def _dtype(i: Instruction) -> str:
    return next((s.dtype.name for s in i.shape.leaves() if s.is_array), "f32")
