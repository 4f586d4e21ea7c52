"""Orders of kinds ``simulate`` and ``report``: a predicted step, and the HTML page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError
from shardc.service.orders import ReportOrder, SimulateOrder
from shardc.service.workers.workbench import Workbench, mesh_of

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["report_program", "simulate_program"]

#: What an order says that only partitioning and scheduling use; its settings may be those of the client's environment.
_PARTITIONING = ("annotations", "measured", "windowed_einsum", "pipelined_loops", "plan", "memory")


def simulate_program(bench: Workbench, order: SimulateOrder) -> dict[str, bytes]:
    """``simulation.json``, ``trace.json``, the files of `partition_program`, and a page if it is wanted."""
    from shardc.analysis.report.write import report_page

    machine, (partitioned, found) = bench.need_machine(), _simulate(bench, order)
    files = {**bench.partition_files(partitioned), **_simulation_files(found)}
    if order.page:
        with bench.stage("page"):
            page = report_page(partitioned, machine=machine, mapping=order.mapping or None, simulation=found)
            files["report.html"] = page.encode()
    return files


def _simulate(bench: Workbench, order: SimulateOrder) -> tuple[PartitionedProgram, Simulation]:
    from shardc.analysis.simulate.simulate_program import simulate_partitioned, simulate_scheduled
    from shardc.compiler.lower.as_scheduled import is_scheduled
    from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
    from shardc.partitioner.program import PropagatedProgram

    machine, mapping, program = bench.need_machine(), order.mapping or None, bench.read_program()
    if not is_scheduled(program.module):
        partitioned = bench.partition(bench.annotate(program, order.annotations, order.mesh))
        with bench.stage("simulate"):
            return partitioned, simulate_partitioned(
                partitioned, machine, mapping=mapping, ignore_memory=order.ignore_memory
            )
    plain_order = SimulateOrder(program=order.program)
    if vain := [name for name in _PARTITIONING if getattr(order, name) != getattr(plain_order, name)]:
        what = f"the program is already partitioned and scheduled: the order's {vain[0]} would have no effect"
        raise InputError(what, where=order.name, fix=f"omit {vain[0]}")
    with bench.stage("simulate"):
        mesh = mesh_of(order.mesh)
        found = simulate_scheduled(program, machine, mesh=mesh, mapping=mapping, ignore_memory=order.ignore_memory)
    if not is_partitioned(program.module):
        return bench.partition(program), found
    # It stays as it is, of which there is no need to warn.
    return bench.partition_propagated(PropagatedProgram(program, program.module, None, program.seconds)), found


def _simulation_files(found: Simulation) -> dict[str, bytes]:
    from shardc.analysis.simulate.trace import trace_events

    trace = json.dumps(trace_events(found), allow_nan=False, separators=(",", ":")) + "\n"
    return {"simulation.json": plain.to_json(found).encode(), "trace.json": trace.encode()}


def report_program(bench: Workbench, order: ReportOrder) -> dict[str, bytes]:
    """``report.html``, the files of `partition_program` and, with a machine, those of a simulated step."""
    from shardc.analysis.report.write import report_page
    from shardc.analysis.simulate.simulate_program import simulate_partitioned

    machine, mapping, partitioned = bench.machine() or None, order.mapping or None, bench.partition()
    files, found = bench.partition_files(partitioned), None
    if machine is not None:
        with bench.stage("simulate"):
            found = simulate_partitioned(partitioned, machine, mapping=mapping, ignore_memory=True)
        files |= _simulation_files(found)
    with bench.stage("page"):
        page = report_page(
            partitioned,
            machine=machine,
            mapping=mapping,
            remedies=order.remedies,
            seconds=order.seconds,
            simulation=found,
        )
        return {**files, "report.html": page.encode()}
