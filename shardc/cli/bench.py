"""``shardc bench``: how long compiling and running take, what each kernel takes, and what memory holds."""

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
)
from shardc.cli.run import (
    DeviceOption,
    InputsOption,
    PerRankOption,
    RanksOption,
    SeedOption,
    TuneOption,
    absolute,
    execute,
)
from shardc.cli.view import View

__all__ = ["bench"]


def bench(
    file: FileArgument,
    *,
    steps: Annotated[int, typer.Option("--steps", metavar="K", min=1, help="Steps to time.")] = 20,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Steps before the clock starts.")] = 3,
    profile: Annotated[bool, typer.Option("--profile", help="Time every kernel, and show it by the roofline.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="OUT.json", help="The last step for ui.perfetto.dev; means --profile."),
    ] = None,
    memory_svg: Annotated[
        Path | None, typer.Option("--memory-svg", metavar="OUT.svg", help="Draw what lies in memory at each step.")
    ] = None,
    inputs: InputsOption = None,
    ranks: RanksOption = 0,
    devices_per_rank: PerRankOption = 0,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    tune: TuneOption = 0.0,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Time the stages of compilation and the steps of a program (median over --steps).

    Example: shardc bench step.hlo --ranks 4 --steps 100, or shardc bench step.hlo --profile --trace step.json
    """
    from shardc.launcher.atomic import check_writable
    from shardc.launcher.task import Task

    check_writable(memory_svg)
    task = Task(
        absolute(inputs), "", seed, steps, warmup, devices_per_rank, profile or trace is not None, absolute(trace)
    )
    program = (file, mesh, annotate, annotations)
    execute(View(json, verbose, quiet), program, task, ranks, device, memory_svg, tune)
