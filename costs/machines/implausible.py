"""Numbers of a machine's description that look as if they were given in another unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardc.costs.machines.device import Device
from shardc.costs.machines.host_link import HostLink
from shardc.costs.machines.level import Level

__all__ = ["implausible"]

#: Nothing that was ever built is outside: from a small microcontroller to a hundred times the largest chips of 2026.
_BYTES = (1e5, 1e14, "bytes")
_BANDWIDTH = (1e6, 1e15, "bytes per second")
_RATE = (1e7, 1e18, "operations per second")
_LATENCY = (1e-10, 0.5, "seconds")


def implausible(device: Device, levels: Iterable[Level], host: HostLink | None = None) -> Iterator[str]:
    """A warning for each number that is far from what devices and links have."""
    checked = [
        ("device, memory_bytes", device.memory_bytes, _BYTES),
        ("device, memory_bandwidth", device.memory_bandwidth, _BANDWIDTH),
        *((f"device, flops of {name}", rate, _RATE) for name, rate in device.flops.items()),
        ("device, vector_flops", device.vector_flops, _RATE),
        ("device, memory_latency", device.memory_latency, _LATENCY),
        ("device, launch_seconds", device.launch_seconds, _LATENCY),
    ]
    for level in levels:
        checked += [
            (f"level {level.name}, bandwidth", level.bandwidth, _BANDWIDTH),
            (f"level {level.name}, latency", level.latency, _LATENCY),
            (f"level {level.name}, start", level.start, _LATENCY),
        ]
    if host is not None:
        checked += [
            ("host, bandwidth", host.bandwidth, _BANDWIDTH),
            ("host, latency", host.latency, _LATENCY),
            ("host, memory_bytes", host.memory_bytes, _BYTES),
        ]
    for where, value, (least, most, unit) in checked:
        if value and not least <= value <= most:
            yield f"{where} is {value:g} {unit}: is that number in another unit?"
