"""The link between a device and its host, which values in host memory cross: the ``[host]`` part of a machine.

Example::

    [host]
    name = "pcie"
    bandwidth = 64e9                  # bytes per second in one direction; both go at the same time
    latency = 10e-6                   # seconds that a copy takes besides its bytes (0)
    efficiency = 0.86                 # the share of the bandwidth that long copies reach (1)
    memory_bytes = 250_000_000_000    # of the host, for each of its devices (0: not known)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardc.costs.machines.device import require_fields, require_positive
from shardc.hlo.errors import InputError

__all__ = ["HostLink", "host_link_of"]


@dataclass(frozen=True, slots=True)
class HostLink:
    """A link to the host: ``bandwidth`` bytes per second in each direction, of which long copies reach ``efficiency``;
    ``latency`` seconds per copy. ``memory_bytes`` of the host are for one device (0: not known)."""

    name: str
    bandwidth: float
    latency: float = 0.0
    efficiency: float = 1.0
    memory_bytes: int = 0

    def seconds(self, nbytes: int) -> float:
        """What a copy of so many bytes takes alone.

        >>> HostLink("pcie", 64e9, efficiency=0.5).seconds(32_000_000)
        0.001
        """
        return self.latency + nbytes / (self.bandwidth * self.efficiency)

    def channel(self, *, to_host: bool) -> str:
        """One direction of the link. Example: ``pcie to host``."""
        return f"{self.name} {'to' if to_host else 'from'} host"


def host_link_of(given: Mapping[str, Any], where: str) -> HostLink:
    """The link of a ``[host]`` table; `InputError` for what is missing, unknown or makes no sense."""
    require_fields(given, HostLink, "a host", where)
    efficiency = require_positive(given, "efficiency", where) if "efficiency" in given else 1.0
    if efficiency > 1:
        raise InputError(f"efficiency is {efficiency}", where=where, fix="give a fraction between 0 and 1")
    return HostLink(
        str(given.get("name", "host")),
        require_positive(given, "bandwidth", where),
        require_positive(given, "latency", where) if given.get("latency", 0) else 0.0,
        efficiency,
        int(require_positive(given, "memory_bytes", where)) if given.get("memory_bytes", 0) else 0,
    )
