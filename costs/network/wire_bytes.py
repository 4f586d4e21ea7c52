"""What a collective sends under a bandwidth-optimal algorithm (Patarasu and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", 2009), whatever the machine: the figure of reports."""

from __future__ import annotations

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction

__all__ = ["group_size", "wire_bytes"]


def group_size(op: Instruction, devices: int = 0) -> int:
    """Members of one group of a collective; ``devices`` when the group is everybody."""
    groups = op.attrs.get("replica_groups")
    if groups is None:
        pairs = op.attrs.get("source_target_pairs")
        return pairs.group_size if isinstance(pairs, AxisPairs) else devices
    return groups.group_size or devices


def wire_bytes(op: Instruction, devices: int = 0) -> float:
    """Bytes that one device sends in one execution under a bandwidth-optimal algorithm (DESIGN.md's formulae)."""
    g = max(group_size(op, devices), 1)
    result = op.shape.nbytes
    kind = op.opcode.removesuffix("-start")
    if kind == "all-reduce":
        return 2 * result * (g - 1) / g
    if kind in ("all-gather", "all-to-all", "ragged-all-to-all"):
        return result * (g - 1) / g
    if kind == "reduce-scatter":
        return float(result * (g - 1))
    return float(result)
