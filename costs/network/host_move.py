"""What a move between host and device takes of the link between them."""

from __future__ import annotations

from shardc.costs.machines.host_link import HostLink
from shardc.costs.machines.machine import Machine
from shardc.hlo.errors import InputError

__all__ = ["host_link_for"]


def host_link_for(machine: Machine) -> HostLink | None:
    """The link that moves cross on ``machine``; None where devices are processors, whose memory is the host's.

    Raises `InputError` for an accelerator of which nobody said how it reaches its host.
    """
    if machine.host is None and machine.device.kind != "cpu":
        raise InputError(
            f"the program keeps values in host memory, but the machine {machine.name} has no link to a host",
            fix='add to its file: [host] with name = "pcie" and bandwidth = 64e9 (bytes per second)',
        )
    return machine.host
