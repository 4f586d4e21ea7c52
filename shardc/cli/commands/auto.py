"""``shardc auto``: annotations found for a machine, as specs to paste."""

from __future__ import annotations

import re
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
    open_program,
    parse_mesh,
)
from shardc.cli.view import View
from shardc.hlo.errors import InputError

__all__ = ["auto"]

AutoMachineOption = Annotated[
    str, typer.Option("--machine", metavar="NAME", help="A name such as h100-dgx or tpu-v5p, or a TOML file.")
]
DevicesOption = Annotated[
    int | None,
    typer.Option("--devices", metavar="N", min=1, help="Try all meshes of so many devices; default: the mesh's."),
]
MemoryOption = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="What a device may take, such as 40GiB; default: the machine's.")
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="NAME",
        help="Of arguments and results keep the annotations of this name or glob only; default: of all. Repeatable.",
    ),
]
PlanOutOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="OUT", help="Write JAX code (OUT.py), or annotations (OUT.toml)."),
]

_UNITS = {"": 1, **{f"{p}B": 1000**n for n, p in enumerate(("", "k", "M", "G", "T"))}}
_UNITS |= {f"{p}iB": 1024**n for n, p in enumerate(("K", "M", "G", "T"), 1)}


def auto(
    file: FileArgument,
    *,
    machine: AutoMachineOption,
    devices: DevicesOption = None,
    memory: MemoryOption = "",
    keep: KeepOption = None,
    output: PlanOutOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find annotations with which a step is shortest on a machine, as PartitionSpecs to paste. Needs no hardware.

    Example: shardc auto step.mlir --machine h100-dgx --devices 64 -o plan.py
    """
    from shardc.analysis.auto.auto import auto as find
    from shardc.analysis.auto.found_plan import MESH_COLUMNS, SPEC_COLUMNS
    from shardc.launcher.run.output_files import check_writable

    view = View(json, verbose, quiet)
    check_writable(output)
    if output is not None and output.suffix not in (".py", ".toml"):
        raise InputError("a plan is JAX code or annotations", where=str(output), fix="name it NAME.py or NAME.toml")
    if devices is not None and mesh and parse_mesh(mesh) is not None:
        raise InputError("--devices and --mesh together", fix="give one of them")
    program = open_program(file, mesh, annotate, annotations)
    found = find(program, machine=machine, devices=devices, memory=_bytes(memory), keep=keep)

    def show() -> None:
        view.text(f"{found.summary}\n")
        if found.written.specs:
            view.table("", SPEC_COLUMNS, found.written.as_table())
        else:
            view.text("No annotation makes the step shorter.")
        if len(found.meshes) > 1:
            view.text("")
            view.table("", MESH_COLUMNS, [m.row() for m in found.meshes])
        if output is None:
            view.text(f"\n{found.as_jax()}")

    view.result(found.to_dict() if json else None, show)
    if output is not None:
        found.save(output)
        view.log(f"wrote {output}")


def _bytes(text: str) -> float | None:
    """``40GiB``, ``80e9``; nothing is None. Raises `InputError`."""
    if not text:
        return None
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    unit = None if match is None else _UNITS.get(match[2])
    try:
        size = float(match[1]) * unit if match is not None and unit is not None else 0.0
    except ValueError:
        size = 0.0
    if not size > 0:
        raise InputError(f"{text!r} is not a size", where="--memory", fix="--memory 40GiB, 80GB or a number of bytes")
    return size
