"""``shardc auto``: annotations found for a machine, as specs to paste."""

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
    annotated,
    given_annotations,
    parse_bytes,
)
from shardc.cli.view import View
from shardc.hlo.errors import InputError

__all__ = ["auto"]

AutoMachineOption = Annotated[
    str, typer.Option("--machine", metavar="NAME", help="A name such as h100-dgx or tpu-v5p, or a TOML file.")
]
DevicesOption = Annotated[
    int | None,
    typer.Option("--devices", metavar="N", min=1, help="Try all meshes of N devices; default: the program's mesh."),
]
MemoryOption = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="Memory per device, such as 40GiB; default: the machine's.")
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="NAME",
        help="Keep only annotations of arguments and results that match this name or glob; default: all. Repeatable.",
    ),
]
PlanOutOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="OUT", help="Write JAX code (OUT.py), or annotations (OUT.toml)."),
]


PictureOption = Annotated[
    Path | None, typer.Option("--picture", metavar="OUT.svg", help="Draw the values whose layout changes, and why.")
]


def auto(
    file: FileArgument,
    *,
    machine: AutoMachineOption,
    devices: DevicesOption = None,
    memory: MemoryOption = "",
    keep: KeepOption = None,
    output: PlanOutOption = None,
    picture: PictureOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the annotations that make a step shortest on a machine, as PartitionSpecs to paste. Needs no hardware.

    Example: shardc auto step.mlir --machine h100-dgx --devices 64 -o plan.py
    """
    from shardc.analysis.auto.auto import auto as find
    from shardc.analysis.auto.found_plan import MESH_COLUMNS, NO_ANNOTATIONS, SPEC_COLUMNS, check_plan_file
    from shardc.analysis.auto.written_plan import is_written_plan
    from shardc.analysis.explain.plan_text import plan_text
    from shardc.analysis.sweep.meshes import mesh_to_resize
    from shardc.launcher.run.output_files import check_outputs
    from shardc.stages.programs import load

    view = View(json, verbose, quiet)
    check_outputs(file, annotations, output=output, picture=picture, replaces=is_written_plan)
    if output is not None:
        check_plan_file(output)
    if devices is not None and mesh:
        raise InputError("--devices and --mesh exclude each other", fix="give one of them")
    specs, wanted = given_annotations(mesh, annotate, annotations)
    program = load(file)
    if devices is not None and wanted is None and program.mesh is None and specs:
        wanted = mesh_to_resize(specs.values())
    program = annotated(program, specs, wanted)
    found = find(program, machine=machine, devices=devices, memory=parse_bytes(memory, "--memory"), keep=keep)

    def show() -> None:
        view.text(f"{found.summary}\n")
        if found.written.specs:
            view.table("", SPEC_COLUMNS, found.written.as_table())
        else:
            view.text("\n".join(NO_ANNOTATIONS))
        if verbose:
            view.text("")
            view.text("\n".join(plan_text(found.plan, verbose=True)))
        if len(found.meshes) > 1:
            view.text("")
            view.table("", MESH_COLUMNS, [m.row() for m in found.meshes])
        if output is None and found.written.specs:
            view.text(f"\n{found.as_code()}")

    if output is not None:
        found.save(output)
        view.log(f"Wrote {output}")
    if picture is not None:
        found.draw_plan(picture)
        view.log(f"Wrote {picture}")
    view.result(found.to_dict() if json else None, show)
