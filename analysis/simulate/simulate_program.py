"""From a partitioned program to its simulation: find the machine, lower for it, run the clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardc.analysis.simulate.judge_of import judge_of
from shardc.analysis.simulate.run import need_memory, simulate
from shardc.analysis.simulate.simulation import Simulation
from shardc.compiler.lower.as_scheduled import is_scheduled, lower_as_scheduled
from shardc.compiler.lower.described import lower_for, overlap_on
from shardc.compiler.measured import program_key, read_measured
from shardc.costs.machines.machine import GivenMapping, Machine, load_machine, placed_machine
from shardc.costs.network.mapping import place
from shardc.costs.network.placement import Placement
from shardc.costs.network.search_mapping import mesh_of, search_mapping
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.progress import stage
from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
from shardc.partitioner.program import PartitionedProgram, SourceProgram

__all__ = ["simulate_partitioned", "simulate_program", "simulate_scheduled"]


def simulate_program(
    program: SourceProgram,
    machine: str | Path | None,
    *,
    mesh: Mesh | None = None,
    mapping: GivenMapping | None = None,
    ignore_memory: bool = False,
) -> Simulation:
    """Simulate a program as it is where it is scheduled, else partition it for ``machine`` before; see
    `Program.simulate`."""
    if is_scheduled(program.module):
        return simulate_scheduled(program, machine, mesh=mesh, mapping=mapping, ignore_memory=ignore_memory)
    program = program if mesh is None else program.annotate({}, mesh)
    placed = placed_machine(machine or program.config.machine or None, mapping)
    partitioned = program.partition(machine=placed, judge=judge_of(placed, program.config))
    return simulate_partitioned(partitioned, placed, mapping=mapping, ignore_memory=ignore_memory)


@stage("simulate")
def simulate_partitioned(
    partitioned: PartitionedProgram,
    machine: str | Path | None,
    *,
    mapping: GivenMapping | None = None,
    ignore_memory: bool = False,
) -> Simulation:
    """See `Partitioned.simulate`."""
    if is_scheduled(partitioned.program.module):
        return simulate_scheduled(partitioned.program, machine, mapping=mapping, ignore_memory=ignore_memory)
    config = partitioned.program.config
    name = _named(machine, config)
    module = partitioned.compiled_module
    placement = _place_devices(load_machine(name), module, mapping)
    config = replace(config, machine=name)
    overlap = overlap_on(placement, config)
    measured = read_measured(config.profile, program_key(module)) if config.profile is not None else {}
    source = partitioned.propagated.module
    found = simulate(
        lower_for(module, placement, config),
        placement,
        whole=None if is_partitioned(source) else source,
        start_seconds=0.0 if overlap is None else overlap.start_seconds,
        measured=measured,
    )
    if not ignore_memory:
        need_memory(found)
    return found


def simulate_scheduled(
    program: SourceProgram,
    machine: str | Path | None,
    *,
    mesh: Mesh | None = None,
    mapping: GivenMapping | None = None,
    ignore_memory: bool = False,
) -> Simulation:
    """See `Program.simulate`: of a scheduled program for one device of several, as it is."""
    name = _named(machine, program.config)
    lowered = lower_as_scheduled(program.module, mesh)
    found = simulate(lowered, _place_devices(load_machine(name), lowered.module, mapping))
    if not ignore_memory:
        need_memory(found)
    return found


def _named(machine: str | Path | None, config: Config) -> str:
    """The machine that is asked for, else the one that the program was partitioned for."""
    name = str(machine or config.machine or "")
    if not name:
        raise InputError("no machine to simulate is given", fix="name one, such as h100-dgx")
    return name


def _place_devices(machine: Machine, module: Module, mapping: GivenMapping | None) -> Placement:
    """The devices of ``module`` on ``machine``."""
    return search_mapping(machine, module) if mapping == "search" else place(machine, mesh_of(module), mapping)
