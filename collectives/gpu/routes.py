"""The route of each collective of a program: within a GPU, by NCCL, or through the host's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import Ownership, check_call
from shardc.collectives.gpu.virtual import fits_one_gpu

__all__ = ["Routes", "choose_routes"]


@dataclass(frozen=True, slots=True)
class Routes:
    """Collectives by how they are done; the same on all processes of a job."""

    within: tuple[CollectiveCall, ...]
    by_nccl: tuple[CollectiveCall, ...]
    staged: tuple[CollectiveCall, ...]


def choose_routes(calls: Sequence[CollectiveCall], ownership: Ownership, nccl: bool) -> Routes:
    """``nccl``: the processes of the job have NCCL, and a GPU each; it is used where they have one device each."""
    table = ownership.table()
    nccl = nccl and ownership.num_devices == ownership.num_processes
    within, by_nccl, staged = [], [], []
    for call in calls:
        members = check_call(call, ownership.num_devices)
        if fits_one_gpu(call, members) and all(table[d] == table[group[0]] for group in members for d in group):
            within.append(call)
        elif nccl and fits_one_gpu(call, members):
            by_nccl.append(call)
        else:
            staged.append(call)
    return Routes(tuple(within), tuple(by_nccl), tuple(staged))
