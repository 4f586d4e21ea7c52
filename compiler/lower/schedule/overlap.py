"""What goes on side by side on the machine that a program is lowered for, and how eagerly that is used."""

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
    """``transfers`` collectives may be under way on one kind of links while the device computes (0: none; then only
    pairs that the program came with stay asynchronous, where that costs no memory, and collectives that were measured
    to wait for other devices become so). ``queued`` may have begun, where that is more: the others wait for their turn.

    ``start_seconds`` is what a start and a done cost the device; a pair has to hide ``least_seconds`` to stay one.
    ``everything``: whatever may go on beside something does, however little it brings. The bytes of the arena and the
    results may grow by the factor ``memory``, and not beyond
    ``memory_bytes`` of the device together with arguments, nor what the program was planned for (`memory_limit`).
    ``measured`` are seconds by kernel or collective, which count instead of the model's. ``placement`` says where the
    mesh lies on the machine, if not as by default.
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
        """Where the devices of ``module`` lie: as it was given, else by default. Raises `InputError` for a misfit."""
        if self.placement is not None:
            return self.placement
        return place(self.machine, mesh_of(module))


def overlap_of(config: Config, program: str = "") -> Overlap | None:
    """The machine of ``config``, with what was measured of the program whose key is ``program``; None if nothing is to
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
