"""From a partitioned program to its simulation: find the machine, lower for it, run the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.compiler.lower.overlap import Overlap, overlap_of
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.errors import InputError
from shardc.launcher.simulate.run import need_memory, simulate
from shardc.launcher.simulate.simulation import Simulation

if TYPE_CHECKING:
    from shardc.launcher.stages import Partitioned

__all__ = ["simulate_partitioned"]

_Mapping = str | Mapping[str, Any] | Sequence[str] | None


def simulate_partitioned(
    partitioned: Partitioned, machine: str | Path | None, *, mapping: _Mapping = None, ignore_memory: bool = False
) -> Simulation:
    """See `Partitioned.simulate`."""
    from shardc.collectives.machine import load_machine

    config = partitioned.program.config
    name = str(machine or config.machine or "")
    if not name:
        raise InputError("no machine to simulate", fix='name one, such as simulate("h100-dgx")')
    described = load_machine(name)
    config = replace(config, machine=name)
    overlap = overlap_of(config) or Overlap(described, 0)
    found = simulate(lower(partitioned.compiled_module, config), overlap)
    if not ignore_memory:
        need_memory(found)
    return found
