"""What a program needs of a device's memory: one number, that of the program as it is lowered."""

from __future__ import annotations

from typing import Any

from shardc.compiler.lower.as_scheduled import is_scheduled, lower_as_scheduled
from shardc.compiler.lower.described import lower_for
from shardc.compiler.lower.lowered import Lowered, memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.costs.machines.machine import load_machine
from shardc.costs.network.mapping import place
from shardc.costs.network.search_mapping import mesh_of
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.partitioner.program import PartitionedProgram

__all__ = ["device_memory", "lower_partitioned", "with_memory"]


def lower_partitioned(partitioned: PartitionedProgram) -> Lowered:
    """The program as `simulate` has it on the machine that it was partitioned for; without one as `compile` has it.

    Raises `UnsupportedError` for operations that cannot be compiled, `InputError` for a mesh that does not fit the
    machine.
    """
    program, module = partitioned.program, partitioned.compiled_module
    if is_scheduled(program.module):
        return lower_as_scheduled(program.module, None)
    if not program.config.machine:
        return lower(module, program.config)
    placement = place(load_machine(program.config.machine), mesh_of(module))
    return lower_for(module, placement, program.config)


def device_memory(partitioned: PartitionedProgram) -> dict[str, int] | None:
    """The bytes of `memory_analysis` of the lowered program; None for a program that cannot be lowered.

    >>> device_memory(partitioned)["peak_bytes"]
    11534848
    """
    try:
        return memory_analysis(lower_partitioned(partitioned))
    except (InputError, UnsupportedError):
        return None


def with_memory(report: dict[str, Any], partitioned: PartitionedProgram) -> dict[str, Any]:
    """The report of a partitioned program with the memory of the lowered one, in place of an estimate.

    A report that has it, and that of a program that cannot be lowered, stay as they are.
    """
    memory = device_memory(partitioned) if report["peak_bytes_estimated"] else None
    if memory is None:
        return report
    return {**report, "peak_bytes": memory["peak_bytes"], "peak_bytes_estimated": False, "memory": memory}
