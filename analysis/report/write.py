"""The report of a partitioned program, written as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.costs.machines.machine import GivenMapping, load_machine
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.files import near_files
from shardc.hlo.progress import stage
from shardc.launcher.run.output_files import STANDARD_OUTPUT, check_writable, write_text

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["put_beside", "read_report", "report_page", "report_target", "write_report"]


@stage("report")
def write_report(
    partitioned: PartitionedProgram,
    path: str | Path,
    *,
    machine: str | Path | None = None,
    mapping: GivenMapping | None = None,
    remedies: int = 0,
    seconds: float = 30.0,
) -> None:
    """See `Partitioned.write_report`; ``seconds`` as `Partitioned.explanation` has it."""
    target = report_target(path)
    text = report_page(partitioned, machine=machine, mapping=mapping, remedies=remedies, seconds=seconds)
    write_text(target, text)


def report_page(
    partitioned: PartitionedProgram,
    *,
    machine: str | Path | None = None,
    mapping: GivenMapping | None = None,
    remedies: int = 0,
    seconds: float = 30.0,
    simulation: Simulation | None = None,
) -> str:
    """The text of the page that `write_report` writes; ``simulation`` is that on the ``machine``, where there is one
    already."""
    from shardc.analysis.explain.explain import explain
    from shardc.analysis.explain.remedies import SearchLimits
    from shardc.analysis.report.gather import report_data
    from shardc.analysis.report.page import page
    from shardc.analysis.simulate.simulate_program import simulate_partitioned

    machine = machine or partitioned.program.config.machine or None
    if mapping is not None and machine is None:
        raise InputError(
            "a mapping places mesh axes on a machine, but no machine is named", fix="name a machine (--machine)"
        )
    limits = SearchLimits(remedies, seconds=seconds)
    told: dict[str, Any] = {"explanation": explain(partitioned, None if machine is None else str(machine), limits)}
    if machine is None:
        told["memory"] = _memory(partitioned)
    else:
        told["bandwidth"] = load_machine(machine).device.memory_bandwidth
        told["simulation"] = simulation or simulate_partitioned(
            partitioned, machine, mapping=mapping, ignore_memory=True
        )
    return page(report_data(partitioned, **told))


def put_beside(path: Path, other: Path) -> None:
    """Make the report at ``path`` a page of two: itself, and the report ``other``, written before, beside it.

    Raises `InputError` where one of them is no report of this release.
    """
    from shardc.analysis.report.page import page

    first, second = (read_report(p) for p in (path, other))
    write_text(path, page(first, second))


def read_report(path: Path) -> dict[str, Any]:
    """The data of a report that was written before. Raises `InputError` where it is none of this release."""
    from shardc.analysis.report.page import page_data

    try:
        return page_data(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise InputError(f"there is no report {path}", where=str(path), fix=near_files(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the report cannot be read: {error}", where=str(path), fix="give a page of shardc report"
        ) from None


def report_target(path: str | Path) -> Path:
    """Where a report is written; `InputError` for a file that is no page, or cannot be written."""
    target = Path(path)
    if target.suffix not in (".html", ".htm") and target != STANDARD_OUTPUT:
        raise InputError(f"a report cannot be written as {target.suffix!r}", where=str(path), fix="use .html")
    check_writable(target)
    return target


def _memory(partitioned: PartitionedProgram) -> MemoryTimeline | None:
    """The buffers of the step as it is lowered for this computer; None where something in it cannot be."""
    from shardc.analysis.device_memory import lower_partitioned
    from shardc.compiler.lower.buffers.memory_timeline import memory_timeline

    try:
        return memory_timeline(lower_partitioned(partitioned))
    except UnsupportedError:
        return None
