"""The machine's roofline: the least time that bytes and operations take. Measured, and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shardc.costs.machines.device import Device
from shardc.hlo.config import Config
from shardc.hlo.files import write_atomically
from shardc.native.llvm.target import host_target
from shardc.native.memory.speed import copy_bandwidth, peak_flops

__all__ = ["Roofline", "described_roofline", "roofline"]

#: Raised when what is measured changes its meaning.
_VERSION = 2
#: How often it is measured at most: what lies in caches may be quicker than memory forever.
_MOST = 4
_DOUBLE = frozenset({"f64", "c128"})


@dataclass(frozen=True, slots=True)
class Roofline:
    """Bytes per second (read and written) that copying reaches, and operations per second by type, on ``threads``
    threads together; the best of ``measured`` times."""

    threads: int
    bytes_per_second: float
    flops_per_second: Mapping[str, float]
    measured: int = 1

    def seconds(self, nbytes: int, flops: int, dtype: str = "f32") -> float:
        """The least time of work on elements of ``dtype``: memory and arithmetic go on side by side."""
        peak = self.flops_per_second["f64" if dtype in _DOUBLE else "f32"]
        return max(nbytes / self.bytes_per_second, flops / peak)

    def share(self, parts: int) -> Roofline:
        """What each of ``parts`` has that use the machine at the same time."""
        flops = {k: v / parts for k, v in self.flops_per_second.items()}
        return replace(self, bytes_per_second=self.bytes_per_second / parts, flops_per_second=flops)

    def at_least(self, other: Roofline) -> Roofline:
        """The better of both in everything."""
        flops = {k: max(v, other.flops_per_second[k]) for k, v in self.flops_per_second.items()}
        nbytes = max(self.bytes_per_second, other.bytes_per_second)
        return Roofline(self.threads, nbytes, flops, self.measured + other.measured)


def roofline(config: Config, threads: int, *, again: bool = False) -> Roofline:
    """This machine's, from the cache folder or measured now (under a second, best when nothing else runs).

    ``again``: something was faster, so it was measured while the machine was busy, and is measured once more, but not
    forever. What was found once stays possible.
    """
    path = config.cache_dir / "roofline" / f"{_machine(threads)}.json"
    found = _read(path)
    if found is not None and (not again or found.measured >= _MOST):
        return found
    made = Roofline(threads, copy_bandwidth(threads), peak_flops(threads))
    if found is not None:
        made = made.at_least(found)
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
        return Roofline(int(data["threads"]), float(data["bytes_per_second"]), flops, int(data["measured"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
