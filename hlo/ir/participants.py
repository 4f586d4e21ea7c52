"""Which devices take part in a collective: its groups or pairs read as HLO means them.

Device d is replica ``d // partitions``, partition ``d % partitions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardc.hlo.ir.groups import AxisGroups, AxisPairs, ListGroups
from shardc.hlo.ir.ir import Instruction

__all__ = ["Groups", "Pairs", "groups_of_devices", "pairs_of_devices", "transfer_pairs"]

Groups = tuple[tuple[int, ...], ...]
Pairs = tuple[tuple[int, int], ...]

_JOINS_PARTITIONS = ("all-reduce", "all-reduce-start", "all-gather", "all-gather-start", "reduce-scatter")


def groups_of_devices(i: Instruction, partitions: int, replicas: int) -> Groups:
    """The groups of a collective as device numbers, members in order of position.

    HLO has four readings: over replicas (no channel), over partitions (channel, ids are partitions), over both
    (channel on a reduction or gather, ids are replicas) and over flattened ids (``use_global_device_ids``). Groups
    over mesh axes are of devices, and so are ids too large for replicas.
    """
    groups = i.attrs.get("replica_groups", ListGroups())
    listed: Groups = groups.expand()
    if isinstance(groups, AxisGroups) or i.attrs.get("use_global_device_ids"):
        return listed or (tuple(range(partitions * replicas)),)
    channel = bool(i.attrs.get("channel_id"))
    if channel and i.opcode in _JOINS_PARTITIONS:
        listed = listed or (tuple(range(replicas)),)
        if _fit(listed, replicas):
            return tuple(tuple(r * partitions + p for p in range(partitions) for r in g) for g in listed)
    elif not channel and (replicas > 1 or (listed and _fit(listed, replicas))):
        listed = listed or (tuple(range(replicas)),)
        return tuple(tuple(r * partitions + p for r in g) for g in listed for p in range(partitions))
    listed = listed or (tuple(range(partitions)),)
    return tuple(tuple(r * partitions + p for p in g) for g in listed for r in range(replicas))


def pairs_of_devices(i: Instruction, partitions: int, replicas: int) -> Pairs:
    """Source and target devices; ids are replicas without a channel (if there are several), else partitions."""
    pairs = i.attrs["source_target_pairs"]
    listed: Pairs = pairs.expand()
    if isinstance(pairs, AxisPairs) or replicas == 1:
        return listed
    if i.attrs.get("channel_id"):
        return tuple((r * partitions + s, r * partitions + t) for s, t in listed for r in range(replicas))
    return tuple((s * partitions + p, t * partitions + p) for s, t in listed for p in range(partitions))


def transfer_pairs(i: Instruction) -> Pairs | None:
    """Which device sends to which in a send or recv, where XLA's frontend attribute says so."""
    text = dict(i.attrs.get("frontend_attributes", {})).get("_xla_send_recv_source_target_pairs")
    if text is None:
        return None
    return tuple((int(source), int(target)) for source, target in re.findall(r"{(\d+),\s*(\d+)}", text))


def _fit(groups: Iterable[Iterable[int]], count: int) -> bool:
    return all(member < count for group in groups for member in group)
