"""The machine's roofline: the least time that bytes and operations take. Measured once and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from shardc.costs.machines.device import Device
from shardc.hlo.config import Config
from shardc.hlo.files import write_atomically
from shardc.native.llvm.target import host_target
from shardc.native.memory.speed import copy_bandwidth, peak_flops

__all__ = ["Roofline", "described_roofline", "roofline"]

#: Raised when what is measured changes its meaning.
_VERSION = 1
_DOUBLE = frozenset({"f64", "c128"})


@dataclass(frozen=True, slots=True)
class Roofline:
    """Bytes per second (read and written) that copying reaches, and operations per second by type, on ``threads``
    threads together."""

    threads: int
    bytes_per_second: float
    flops_per_second: Mapping[str, float]

    def seconds(self, nbytes: int, flops: int, dtype: str = "f32") -> float:
        """The least time of work on elements of ``dtype``: memory and arithmetic go on side by side."""
        peak = self.flops_per_second["f64" if dtype in _DOUBLE else "f32"]
        return max(nbytes / self.bytes_per_second, flops / peak)

    def share(self, parts: int) -> Roofline:
        """What each of ``parts`` has that use the machine at the same time."""
        flops = {k: v / parts for k, v in self.flops_per_second.items()}
        return Roofline(self.threads, self.bytes_per_second / parts, flops)


def roofline(config: Config, threads: int) -> Roofline:
    """This machine's, from the cache folder or measured now (under a second, best when nothing else runs).

    Remove ``roofline`` in the cache folder to have it measured again.
    """
    path = config.cache_dir / "roofline" / f"{_machine(threads)}.json"
    found = _read(path)
    if found is not None:
        return found
    made = Roofline(threads, copy_bandwidth(threads), peak_flops(threads))
    with suppress(OSError):  # where nothing can be kept it is measured every time
        write_atomically(path, json.dumps(asdict(made), indent=1).encode())
    return made


def described_roofline(device: Device) -> Roofline:
    """That of a described accelerator, whose threads nobody counts."""
    memory = device.memory_bandwidth * device.memory_share
    return Roofline(0, memory, {"f32": device.peak("f32"), "f64": device.peak("f64")})


def _machine(threads: int) -> str:
    target = host_target()
    text = f"{_VERSION} {target.triple} {target.cpu} {target.features} {threads}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(path: Path) -> Roofline | None:
    try:
        data = json.loads(path.read_bytes())
        flops = {str(k): float(v) for k, v in data["flops_per_second"].items()}
        return Roofline(int(data["threads"]), float(data["bytes_per_second"]), flops)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
