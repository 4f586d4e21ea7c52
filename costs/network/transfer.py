"""What one collective of a program takes, and of which links, as an order of instructions is timed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.host_move import host_link_for
from shardc.costs.network.placement import Placement
from shardc.hlo.ir.asynchronous import is_start, join_pair
from shardc.hlo.ir.host_memory.host_moves import host_move_bytes, is_host_move, moves_to_host
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["Transfer", "transfer_of"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a collective, or a move between host and device, takes of ``channel``, in seconds; it keeps ``links`` busy
    (none named: the channel itself)."""

    seconds: float
    channel: str
    links: tuple[str, ...] = ()


def transfer_of(i: Instruction, placement: Placement, measured: Mapping[str, float]) -> Transfer | None:
    """What the collective or move ``i``, or the one that it starts, takes of which links; None for what is neither.

    ``measured`` seconds by name count instead of the model's.
    """
    if is_start(i):
        i = join_pair(i)
    if is_host_move(i):
        return _move(i, placement, measured)
    if i.opcode not in COLLECTIVES:
        return None
    groups = i.attrs.get("source_target_pairs", i.attrs.get("replica_groups"))
    nbytes = sum(s.nbytes for s in i.shape.leaves())
    cost = collective_cost(placement, i.opcode, nbytes, groups)
    seconds = measured.get(i.name, cost.seconds)
    names = dict.fromkeys(load.resource for load in cost.loads) or {placement.links[0].name: None}
    return Transfer(seconds, _channel(tuple(names)), tuple(names))


def _move(i: Instruction, placement: Placement, measured: Mapping[str, float]) -> Transfer | None:
    """Over a direction of the host's link; a kernel like any other where the device has the host's memory."""
    link = host_link_for(placement.machine)
    if link is None:
        return None
    return Transfer(measured.get(i.name, link.seconds(host_move_bytes(i))), link.channel(to_host=moves_to_host(i)))


def _channel(resources: tuple[str, ...]) -> str:
    """What transfers are counted on: links of a level; permutes ahead and back around a torus use different ones."""
    one_way = len(resources) == 1 and resources[0][-1] in "+-"
    return resources[0] if one_way else resources[0].partition(" ")[0].rstrip("+-")
