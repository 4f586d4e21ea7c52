"""What data flow and control flow cost: nothing themselves. Of custom calls LAPACK and top-k are known."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.costs.ops.linalg import lapack_flops, panels
from shardc.costs.ops.op_cost import FREE, HostRates, OpCost, no_seconds, per_flop
from shardc.costs.ops.reduction import topk_flops
from shardc.hlo.ir.ir import Instruction, called_computations
from shardc.hlo.ir.lapack import LAPACK

__all__ = ["COSTS"]


def _custom_call(op: Instruction) -> int:
    """LAPACK's routines and top-k; nothing is known of others."""
    target = op.attrs["custom_call_target"]
    if target in ("TopK", "mhlo.topk"):
        return topk_flops(op)
    return lapack_flops(op) if target in LAPACK else 0


def _launches(op: Instruction) -> int:
    return panels(op) if op.attrs["custom_call_target"] in LAPACK else 1


def _called(op: Instruction, host: HostRates) -> float:
    return sum(host.table[x.opcode].host(x, host) for _, c in called_computations(op) for x in c)


_CALLS = OpCost(host=_called)

COSTS: Mapping[str, OpCost] = {
    **dict.fromkeys(("parameter", "tuple", "get-tuple-element", "after-all"), FREE),
    **dict.fromkeys(("while", "conditional", "call"), _CALLS),
    "custom-call": OpCost(_custom_call, launches=_launches, host=per_flop),
    "optimization-barrier": OpCost(host=no_seconds),
    **dict.fromkeys(("add-dependency", "domain", "fusion", "infeed", "outfeed"), OpCost()),
    **dict.fromkeys(("async-start", "async-update", "async-done", "copy-start", "copy-done"), OpCost()),
}
