"""``shardc demo``: the bundled training step, end to end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from shardc.cli.options import JsonOption, QuietOption, VerboseOption
from shardc.cli.view import View
from shardc.hlo.units import count_text

__all__ = ["demo"]


def demo(
    *,
    ranks: Annotated[int, typer.Option("--ranks", metavar="N", min=0, help="MPI ranks; 0: virtual devices.")] = 4,
    jax: Annotated[
        bool | None, typer.Option("--jax/--no-jax", help="Export the step from JAX, or take the bundled copy.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the weights and tokens.")] = 0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="OUT.svg", help="Draw a weight over the mesh.")] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FOLDER", help="Only write step.py and step.mlir, the files of the guides."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="--write replaces files that were changed.")] = False,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Partition a transformer's training step over a 2x2 mesh, run it on 4 MPI ranks, and compare it with one device.

    Needs neither JAX nor a clone. Example: shardc demo --svg weight.svg
    """
    from shardc.demo.guide import write_guide_files
    from shardc.demo.run import run_demo, show_with
    from shardc.hlo.errors import InputError
    from shardc.launcher.jobs.mpi_environment import detect_launcher
    from shardc.launcher.run.output_files import check_outputs

    view = View(json, verbose, quiet)
    if write is not None:
        files = [str(path) for path in write_guide_files(write, overwrite)]
        view.result({"files": files}, lambda: view.text(f"Wrote {' and '.join(files)}."))
        return
    check_outputs(svg=svg)
    launcher = detect_launcher()
    if launcher is not None and ranks:
        what = f"shardc demo starts {count_text(ranks, 'rank')} itself, but it runs in a job of {launcher.title}"
        raise InputError(what, fix="start it without mpiexec; --ranks says how many ranks it starts")
    show = (lambda part: None) if json else show_with(view)
    start = time.perf_counter()
    facts = run_demo(show, ranks=ranks, seed=seed, picture=svg, use_jax=jax)
    view.result(facts, lambda: view.text(f"Done in {time.perf_counter() - start:.1f} s."))
    if not facts["agrees"]:
        raise typer.Exit(1)
