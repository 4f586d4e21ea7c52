"""``shardc check``: a program against a budget of collectives, bytes, memory, arithmetic and time."""

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
    open_program,
)
from shardc.cli.view import View
from shardc.hlo.errors import InputError

__all__ = ["check"]


def check(
    file: FileArgument,
    *,
    budget: Annotated[Path, typer.Option("--budget", metavar="FILE.toml", help="Budget: the limits of the program.")],
    update: Annotated[
        bool, typer.Option("--update", help="Record the program's totals as the budget's baseline first.")
    ] = False,
    github: Annotated[
        bool, typer.Option("--github", help="Report exceeded limits as annotations of GitHub Actions.")
    ] = False,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    remedies: Annotated[
        int,
        typer.Option(
            "--remedies", metavar="N", min=0, help="Search remedies for the first N collectives that break the budget."
        ),
    ] = 3,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=0, help="Try no new remedy after this many seconds.")
    ] = 30.0,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a program against a budget: forbidden collectives, limits, and a recorded baseline.

    For each exceeded limit, prints the source line, the reason and a remedy. Exit code 1 if there is one.
    Example: shardc check step.mlir --budget budget.toml --github
    """
    from shardc.analysis.budget.budget import read_budget
    from shardc.analysis.budget.check import check as check_budget
    from shardc.analysis.budget.check import record

    view = View(json, verbose, quiet)
    if json and github:
        raise InputError("--json and --github exclude each other", fix="give one of them")
    wanted = read_budget(budget)
    program = open_program(file, mesh, annotate, annotations)
    partitioned = program.partition(machine=wanted.placed_machine)
    if update:
        record(partitioned, wanted)
        view.log(f"recorded the totals in {wanted.baseline}")
    found = check_budget(partitioned, wanted, remedies=remedies, seconds=seconds)
    shown = "\n".join(v.as_github() for v in found.violations) if github and not found.within else found.as_text()
    view.result(found.to_dict(), lambda: view.text(shown))
    if not found.within:
        raise typer.Exit(1)
