"""``shardc propagate``: a sharding for every value."""

from __future__ import annotations

from json import dumps
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
    open_program,
)
from shardc.cli.view import View

__all__ = ["propagate"]

OutOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="OUT", help="Write to this file instead of stdout.")
]

ProvenanceOption = Annotated[
    Path | None,
    typer.Option(
        "--provenance", metavar="OUT.json", help="Write the origin of each axis, and the alternatives it beat."
    ),
]

ConservativeOption = Annotated[
    bool,
    typer.Option(
        "--conservative",
        help="Divide no axis into smaller ones, and do not propagate through dimensions whose elements move.",
    ),
]


def propagate(
    file: FileArgument,
    *,
    output: OutOption = None,
    conservative: ConservativeOption = False,
    provenance: ProvenanceOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Give every value a sharding. MLIR input becomes MLIR with sdy shardings; HLO text stays HLO text.

    Example: shardc propagate step.mlir --mesh data=2,model=4 --annotate x=data,None -o sharded.mlir
    """
    from shardc.launcher.run.output_files import check_outputs, write_text

    view = View(json, verbose, quiet)
    check_outputs(file, annotations, output=output, provenance=provenance)
    program = open_program(file, mesh, annotate, annotations)
    propagated = program.propagate(conservative=conservative)
    text = propagated.as_stablehlo() if program.original else propagated.as_text()
    if output is not None:
        write_text(output, text)
        view.log(f"Wrote {output}")
    if provenance is not None:
        write_text(provenance, dumps(propagated.provenance_dict(), indent=1) + "\n")
        view.log(f"Wrote {provenance}")
    if json:
        view.result(_summary(propagated), lambda: None)
    elif output is None:
        view.text(text)


def _summary(propagated: Any) -> dict[str, Any]:
    module = propagated.module
    names = propagated.program.arg_names
    return {
        "mesh": dict(module.mesh.axes) if module.mesh else {},
        "parameters": [
            {"name": n, "shape": str(p.shape), "sharding": str(p.sharding)}
            for n, p in zip(names, module.parameters, strict=True)
        ],
        "results": [
            {"shape": str(shape), "sharding": str(s)}
            for shape, s in zip(module.results, module.entry.root.leaf_shardings(), strict=True)
        ],
        "seconds": dict(propagated.seconds),
    }
