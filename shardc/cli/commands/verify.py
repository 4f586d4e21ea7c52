"""``shardc verify``: the partitioned program against the unpartitioned one, numerically."""

from __future__ import annotations

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
from shardc.hlo.units import count_text

__all__ = ["verify"]


def verify(
    file: FileArgument,
    *,
    trials: Annotated[
        int, typer.Option("--trials", metavar="K", min=1, help="Number of trials with random inputs.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first trial.")] = 0,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the partitioned program on virtual devices and compare it with the unpartitioned one on random inputs.

    Results without rounding (data movement, integers) must agree exactly. Floats must agree within 64 eps, or 20 times
    the unpartitioned run's own error. Of integers made from such floats, 99 % must agree. Exit code 1 when they differ.
    Example: shardc verify step.hlo --trials 5
    """
    from shardc.analysis.verify import verify_program
    from shardc.stages.stages import remote_compiler

    view = View(json, verbose, quiet)
    program = open_program(file, mesh, annotate, annotations)
    rows = verify_program(program, trials, seed, remote=remote_compiler)
    good = all(r["agrees"] for r in rows)
    view.result({"agrees": good, "results": rows}, lambda: _show(view, rows, trials))
    if not good:
        raise typer.Exit(1)


def _show(view: View, rows: list[dict[str, Any]], trials: int) -> None:
    """A line per trial and result, then one for all."""
    columns = ("trial", "result", "name", "agrees", "error", "bound")
    cells = [
        [
            r["trial"],
            r["index"],
            r["name"],
            "yes" if r["agrees"] else "NO",
            f"{r['error']:.2e}",
            "exact" if r["exact"] else f"{r['bound']:.2e}",
        ]
        for r in rows
    ]
    view.table("", columns, cells)
    for r in rows:
        if not r["agrees"]:
            name = f" ({r['name']})" if r["name"] else ""
            view.text(f"trial {r['trial']}, result {r['index']}{name}: {r['difference']}")
    wrong = sum(not r["agrees"] for r in rows)
    what = f"{count_text(len(rows) // trials, 'result')} x {count_text(trials, 'trial')}"
    view.text(f"{what}: {f'{wrong} DIFFER' if wrong else 'all agree'}")
