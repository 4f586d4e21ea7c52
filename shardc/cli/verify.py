"""``shardc verify``: the partitioned program against the unpartitioned one, numerically."""

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

__all__ = ["verify"]


def verify(
    file: FileArgument,
    *,
    trials: Annotated[int, typer.Option("--trials", metavar="K", min=1, help="Random inputs to try.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of the first trial.")] = 0,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the partitioned program on virtual devices and compare it with the unpartitioned one on random inputs.

    Integers and data movement must agree exactly, floats within 64 eps or 20 times the unpartitioned run's own
    error. Exit code 1 when they differ. Example: shardc verify step.hlo --trials 5
    """
    from shardc.launcher.verify import verify_program

    view = View(json, verbose, quiet)
    rows = verify_program(open_program(file, mesh, annotate, annotations), trials, seed)
    good = all(r["agrees"] for r in rows)
    columns = ("trial", "result", "name", "agrees", "error", "bound")
    cells = [
        [r["trial"], r["index"], r["name"], _yes(r["agrees"]), f"{r['error']:.2e}", f"{r['bound']:.2e}"] for r in rows
    ]
    view.result({"agrees": good, "results": rows}, lambda: view.table("", columns, cells))
    if not good:
        raise typer.Exit(1)


def _yes(agrees: bool) -> str:
    return "yes" if agrees else "NO"
