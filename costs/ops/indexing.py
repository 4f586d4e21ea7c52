"""What indexing costs: runs of consecutive bytes, and a scatter's combining operation per element."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardc.costs.ops.op_cost import HostRates, OpCost, body_steps, no_seconds
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["COSTS"]


def _scatter(op: Instruction) -> int:
    return op.operands[-1].shape.size * body_steps(op)


def _scatter_on_host(op: Instruction, host: HostRates) -> float:
    return op.operands[2].shape.size * host.of(op.opcode, op.operands[0].shape.dtype)


def _gathered_rows(op: Instruction) -> list[tuple[int, int]]:
    return _runs(op.shape, _run(op.attrs.get("slice_sizes") or (), op.operands[0].shape.dims))


def _scattered_rows(op: Instruction) -> list[tuple[int, int]]:
    if len(op.operands) != 3:
        return []
    updates = op.operands[2].shape
    window = op.attrs.get("update_window_dims") or ()
    return _runs(updates, math.prod(updates.dims[d] for d in window))


def _runs(values: Shape, width: int) -> list[tuple[int, int]]:
    width = max(1, min(width, values.size))
    return [(values.size // width, width * values.dtype.nbytes)] if values.size else []


def _run(sizes: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Elements that lie together in a block of ``sizes`` out of ``dims``, row-major."""
    run = 1
    for size, n in zip(reversed(sizes), reversed(dims), strict=True):
        run *= size
        if size != n:
            break
    return run


COSTS: Mapping[str, OpCost] = {
    "dynamic-slice": OpCost(samples=True, host=no_seconds),
    "dynamic-update-slice": OpCost(host=no_seconds),
    "gather": OpCost(rows=_gathered_rows, samples=True),
    "scatter": OpCost(_scatter, rows=_scattered_rows, host=_scatter_on_host),
}
