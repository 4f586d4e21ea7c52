"""``shardc report``: one page with everything about a partitioned program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    FileArgument,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
    search_text,
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
from shardc.cli.source import ServerOption, source
from shardc.cli.view import View

__all__ = ["report"]


def report(
    file: FileArgument,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.html", help="Write the page to this file.")],
    machine: Annotated[
        str, typer.Option("--machine", metavar="NAME[:N]", help="Simulate a step on this machine: seconds, timeline.")
    ] = "",
    map_axes: Annotated[
        str, typer.Option("--map", metavar="MAP", help="Placement of mesh axes on the machine, as for simulate.")
    ] = "",
    remedies: Annotated[
        int, typer.Option("--remedies", metavar="N", min=0, help="Search remedies for the N most costly collectives.")
    ] = 3,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0, help="Start no new try after this many seconds.")
    ] = 30.0,
    beside: Annotated[
        Path | None,
        typer.Option("--beside", metavar="OTHER.html", help="Show this existing report beside the new one."),
    ] = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    server: ServerOption = "",
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
    """Write one HTML page: structure, collectives and their causes, plan, timeline, memory, traffic, tensors.

    Example: shardc report step.mlir -o report.html --mesh data=64,model=8 --machine h100-dgx
    """
    from shardc.analysis.report.write import put_beside, read_report, report_target
    from shardc.hlo.errors import InputError
    from shardc.launcher.run.output_files import STANDARD_OUTPUT, check_outputs

    if beside is not None and output == STANDARD_OUTPUT:
        raise InputError("a comparison of two reports needs an output file", where="--beside", fix="give -o OUT.html")
    view = View(json, verbose, quiet)
    report_target(output)
    check_outputs(file, annotations, profile_in, output=output)
    if beside is not None:
        read_report(beside)
    from shardc.costs.machines.machine import placed_machine

    machine = placed_machine(machine, map_axes) or ""
    scheduling = Scheduling(machine, overlap, profile_in, windowed_einsum, pipelined_loops, plan, memory)
    with source(view, server) as here:
        partitioned = scheduling.partitioned(here.open(file, mesh, annotate, annotations))
        if remedies:
            view.log(search_text(remedies, seconds))
        partitioned.write_report(
            output, machine=machine or None, mapping=map_axes or None, remedies=remedies, seconds=seconds
        )
    if output == STANDARD_OUTPUT:
        return
    if beside is not None:
        put_beside(output, beside)
    size = output.stat().st_size
    view.log(f"Wrote {output} ({size / 1024:.0f} KiB): open it in a browser")
    if json:
        view.result({"output": str(output), "bytes": size}, lambda: None)
