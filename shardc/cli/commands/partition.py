"""``shardc partition``: the program that every device runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    FileArgument,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
)
from shardc.cli.schedule_options import (
    MachineOption,
    PipelinedOption,
    PlanMemoryOption,
    PlanOption,
    WindowedOption,
    plan_terms,
)
from shardc.cli.source import ServerOption, source
from shardc.cli.view import View, bytes_text
from shardc.hlo.units import count_text

__all__ = ["collectives_table", "fitted_source", "partition"]

#: Columns of a terminal that a source line takes at most, where its file's name is no longer.
_WIDEST_SOURCE = 40

OutOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="OUT.hlo", help="Write the HLO text to this file.")
]
ReportOption = Annotated[Path | None, typer.Option("--report", metavar="R.json", help="Write the report as JSON.")]
RingsOption = Annotated[
    bool, typer.Option("--decompose-rings", help="Replace each cyclic permute by two that are acyclic.")
]


def partition(
    file: FileArgument,
    *,
    output: OutOption = None,
    report: ReportOption = None,
    machine: MachineOption = "",
    windowed_einsum: WindowedOption = "auto",
    pipelined_loops: PipelinedOption = "auto",
    decompose_rings: RingsOption = False,
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    server: ServerOption = "",
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the program that each device runs, with its collectives, as HLO text that XLA also runs.

    Example: shardc partition step.mlir -o step.per-device.hlo --report report.json
    """
    import json as json_module

    from shardc.launcher.run.output_files import check_outputs, write_text

    view = View(json, verbose, quiet)
    planned = plan_terms(plan, memory)
    check_outputs(file, annotations, output=output, report=report)
    with source(view, server) as here:
        partitioned = here.open(file, mesh, annotate, annotations).partition(
            machine=machine or None,
            windowed_einsum=windowed_einsum,
            pipelined_loops=pipelined_loops,
            decomposed_rings=decompose_rings,
            **planned,
        )
        text = partitioned.as_text() if output is not None or not (json or report) else ""
        told = json or output is not None or report is not None
        facts = partitioned.report() if told else {}
    if output is not None:
        write_text(output, text)
        view.log(f"Wrote {output}")
    if report is not None:
        write_text(report, json_module.dumps(facts, indent=2, default=str) + "\n")
        view.log(f"Wrote {report}")
    if json:
        view.result(facts, lambda: None)
    elif output is None and report is None:
        view.text(text)
    else:
        collectives_table(view, facts)


def collectives_table(view: View, facts: dict[str, Any]) -> None:
    """The inserted collectives, one row each."""
    rows = [
        (
            c["op"],
            "+".join(c["axes"]) or "-",
            c["group_size"],
            c["count"],
            bytes_text(c["wire_bytes"]),
            fitted_source(c["source"]),
            _shortened(c["reason"]),
        )
        for c in facts["collectives"]
    ]
    mesh = facts["mesh"]
    shape = ",".join(f"{k}={v}" for k, v in mesh.items()) if isinstance(mesh, dict) else str(mesh)
    if not mesh:
        shape = "no mesh: give --mesh data=4 and --annotate ARGUMENT=data" if facts["devices"] == 1 else "unnamed mesh"
    title = (
        f"{count_text(len(rows), 'collective')} on {count_text(facts['devices'], 'device')} "
        f"({shape}), {bytes_text(facts['wire_bytes'])} sent"
    )
    view.table(title, ("collective", "axes", "group", "count", "sent", "source", "reason"), rows)


def fitted_source(source: str) -> str:
    """A source line without the outer folders that a table has no room for; the file's name and the line stay.

    >>> fitted_source("/home/somebody/projects/language/models/transformer.py:47")
    '.../language/models/transformer.py:47'
    """
    text = source.replace("\\", "/")
    while len(text) > _WIDEST_SOURCE and "/" in text.removeprefix(".../"):
        text = ".../" + text.removeprefix(".../").partition("/")[2]
    return text


def _shortened(reason: str) -> str:
    """The first of several reasons; the report has them all."""
    first, *others = reason.split("; ")
    return f"{first}; and {len(others)} more" if others else first
