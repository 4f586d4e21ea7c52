"""``shardc simulate``: what a step takes on a machine that you do not have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    FileArgument,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
    annotated,
    given_annotations,
)
from shardc.cli.schedule_options import (
    OverlapOption,
    PipelinedOption,
    PlanMemoryOption,
    PlanOption,
    ProfileInOption,
    Scheduling,
    WindowedOption,
)
from shardc.cli.source import ProgramOpener, ServerOption, source
from shardc.cli.view import View
from shardc.hlo.errors import InputError

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.hlo.ir.mesh import Mesh

__all__ = ["simulate"]

MachineOption = Annotated[
    str,
    typer.Option("--machine", metavar="NAME[:N]", help="A name such as h100-dgx or tpu-v5p:4x4x4, or a TOML file."),
]
MapOption = Annotated[
    str,
    typer.Option(
        "--map",
        metavar="MAP",
        help='Links by axis ("data=dcn,model=x"), an order of axes, or "search", which keeps the partitioned program.',
    ),
]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", metavar="OUT.json", help="Write a trace for ui.perfetto.dev.")
]
PicturesOption = Annotated[
    Path | None, typer.Option("--pictures", metavar="FOLDER", help="Draw timeline, memory, traffic (needs matplotlib).")
]
IgnoreOption = Annotated[
    bool, typer.Option("--ignore-memory", help="Simulate even if the program exceeds a device's memory.")
]


def simulate(
    file: FileArgument,
    *,
    machine: MachineOption,
    map_axes: MapOption = "",
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    server: ServerOption = "",
    trace: TraceOption = None,
    pictures: PicturesOption = None,
    ignore_memory: IgnoreOption = False,
    overlap: OverlapOption = "",
    profile_in: ProfileInOption = None,
    windowed_einsum: WindowedOption = "auto",
    pipelined_loops: PipelinedOption = "auto",
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict a step on a machine: its time and parts, links, memory, critical path. Needs no hardware.

    An HLO text that XLA has scheduled is simulated as it is.

    Example: shardc simulate step.mlir --mesh data=64,model=8 --machine h100-dgx
    """
    from shardc.analysis.simulate.table import COSTLY_COLUMNS, PATH_COLUMNS, costly_rows, facts, path_rows
    from shardc.analysis.simulate.trace import write_trace
    from shardc.launcher.run.output_files import check_outputs

    view = View(json, verbose, quiet)
    check_outputs(file, annotations, profile_in, trace=trace)
    scheduling = Scheduling(machine, overlap, profile_in, windowed_einsum, pipelined_loops, plan, memory)
    given = given_annotations(mesh, annotate, annotations)
    with source(view, server) as here:
        found = _simulated(here, file, scheduling, given, mapping=map_axes or None, ignore_memory=ignore_memory)
    if trace is not None:
        write_trace(found, trace)
        view.log(f"Wrote {trace}: open it at https://ui.perfetto.dev")
    if pictures is not None:
        from shardc.analysis.simulate.pictures import draw_pictures

        view.log("Wrote " + ", ".join(str(path) for path in draw_pictures(found, pictures)))

    def show() -> None:
        view.text("\n".join((*facts(found), "", "")))
        view.table("", COSTLY_COLUMNS, costly_rows(found))
        view.text("")
        view.table("", PATH_COLUMNS, path_rows(found))

    view.result(found.to_dict() if json else None, show)


def _simulated(
    here: ProgramOpener, file: Path, scheduling: Scheduling, given: tuple[dict[str, str], Mesh | None], **options: Any
) -> Simulation:
    """The step of the program in ``file``; one that XLA has scheduled as it is, which a service sees by itself."""
    from shardc.compiler.lower.as_scheduled import is_scheduled
    from shardc.costs.machines.machine import placed_machine

    program, (specs, wanted) = here.load(file), given
    found: Simulation
    if here.client is not None or not is_scheduled(program.module):
        placed = replace(scheduling, machine=placed_machine(scheduling.machine, options["mapping"]) or "")
        found = placed.partitioned(annotated(program, specs, wanted)).simulate(placed.machine, **options)
    else:
        options_said = scheduling.options_said()
        if specs or options_said:
            vain, fix = ("annotations have", "omit them") if specs else (f"{options_said[0]} has", "omit it")
            what = f"the program is already partitioned and scheduled: {vain} no effect"
            raise InputError(what, where=str(file), fix=fix)
        found = program.simulate(scheduling.machine, mesh=wanted, **options)
    return found
