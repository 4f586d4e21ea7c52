"""What one execution of a program does, as people count it: arithmetic, transcendental functions, bytes of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.trips import count_executions
from shardc.costs.ops.table import OP_COSTS, instruction_flops
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["ProgramWork", "program_work"]

#: Slow elementwise operations that XLA does not count as transcendental.
_ARITHMETIC = frozenset({"divide", "remainder"})
_CONTROL = frozenset({"while", "conditional", "call", "async-start", "async-done"})


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """Of one device: ``flops`` are operations on elements, products count 2 per multiply-add; ``transcendentals``
    are among them."""

    flops: int
    transcendentals: int
    bytes_read: int
    bytes_written: int


def program_work(module: Module) -> ProgramWork:
    """The work of a per-device ``module``, fused or not; loops count as often as they are known to run, else once.

    Example: ``tanh(a @ b)`` of f32[8,16] and f32[16,4] has 1,056 flops, 32 of them transcendental; unfused it reads and
    writes 1,152 bytes.
    """
    runs = count_executions(module).count
    fused = {i.attrs["calls"] for c in module.computations for i in c if i.opcode == "fusion"}
    flops = transcendentals = read = written = 0
    for computation, times in runs.items():
        for i in computation:
            flops += times * instruction_flops(i)
            if OP_COSTS[i.opcode].kind != "simple" and i.opcode not in _ARITHMETIC:
                transcendentals += times * i.shape.size
            if computation in fused or i.opcode in _CONTROL or OP_COSTS[i.opcode].free or i.opcode in COLLECTIVES:
                continue
            traffic = instruction_traffic(i, i.operands[1] if i.opcode == "dynamic-update-slice" else None)
            read += times * traffic.read
            written += times * traffic.written
    return ProgramWork(flops, transcendentals, read, written)
