"""How much communication and computation overlap on a machine, and how eagerly the schedule uses that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from shardc.compiler.measured import read_measured
from shardc.costs.machines.machine import Machine, load_machine
from shardc.costs.network.mapping import place
from shardc.costs.network.placement import Placement
from shardc.costs.network.search_mapping import mesh_of
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module

__all__ = ["Overlap", "overlap_of"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """``transfers`` is the number of collectives that one kind of links performs at a time while the device computes.

    With 0, only two kinds of collectives are asynchronous: pairs of the input program, if that costs no memory, and
    collectives that waited for other devices in a measurement. ``queued`` collectives may have begun, if that is more:
    the others wait in a queue. ``start_seconds`` is the time that a start and a done take on the device; a pair must
    hide ``least_seconds`` to stay a pair. ``everything``: every possible overlap is used, however small its gain. The
    bytes of the arena and the results may grow by the factor ``memory``. Together with arguments they may not exceed
    ``memory_bytes`` of the device, nor the limit that the program was planned for (`memory_limit`). ``measured`` are
    seconds by kernel or collective, which replace those of the model. ``placement`` is the mapping of the mesh to the
    machine, if it is not the default.
    """

    machine: Machine
    transfers: int
    everything: bool = False
    memory: float = 1.1
    memory_bytes: int | None = None
    start_seconds: float = 1e-6
    least_seconds: float = 5e-6
    measured: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    placement: Placement | None = None
    queued: int = 0

    def place_devices(self, module: Module) -> Placement:
        """The placement of the devices of ``module``: the given one, else the default. Raises `InputError` for a
        misfit."""
        if self.placement is not None:
            return self.placement
        return place(self.machine, mesh_of(module))


def overlap_of(config: Config, program: str = "") -> Overlap | None:
    """The overlap of ``config``'s machine, with measured times of the program with the key ``program``; None without
    overlap."""
    if config.overlap == "never":
        return None
    machine = load_machine(config.machine or "host")
    transfers = machine.device.transfers
    if config.overlap == "always" or (config.spare_cores and not config.machine):
        transfers = max(1, transfers)
    measured = read_measured(config.profile, program) if config.profile is not None else {}
    return Overlap(
        machine,
        transfers,
        everything=config.overlap == "always",
        memory=config.overlap_memory if transfers or measured else 1.0,
        memory_bytes=machine.device.memory_bytes if config.machine else None,
        measured=MappingProxyType(dict(measured)),
        queued=machine.device.queued,
    )
