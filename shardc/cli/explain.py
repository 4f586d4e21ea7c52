"""``shardc explain``: why each collective is there, and where a value's sharding comes from."""

from __future__ import annotations

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
)
from shardc.cli.view import View

__all__ = ["explain"]


def explain(
    file: FileArgument,
    *,
    value: Annotated[
        list[str] | None, typer.Option("--value", metavar="NAME", help="Explain the sharding of a value. Repeatable.")
    ] = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Why each collective is there; with --value, where the sharding of a value comes from.

    Example: shardc explain step.hlo --value w1
    """
    view = View(json, verbose, quiet)
    propagated = open_program(file, mesh, annotate, annotations).propagate()
    if value:
        stories = {name: propagated.explain(name) for name in value}
        view.result(stories, lambda: view.text("\n".join(line for s in stories.values() for line in s)))
        return
    partitioned = propagated.partition()
    collectives = partitioned.report()["collectives"]
    entries = partitioned.explain()
    view.result(collectives, lambda: view.text("\n".join(entries) or "no collectives: no data moves between devices"))
