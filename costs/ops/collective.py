"""What collectives cost a kernel model: nothing here, `shardc.costs.network` times them on links."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.costs.ops.op_cost import OpCost, no_seconds
from shardc.hlo.ir.opset import OPS

__all__ = ["COSTS"]

COSTS: Mapping[str, OpCost] = {
    **{op.opcode: OpCost() for op in OPS.values() if op.family == "collective"},
    **dict.fromkeys(("partition-id", "replica-id"), OpCost(host=no_seconds)),
}
