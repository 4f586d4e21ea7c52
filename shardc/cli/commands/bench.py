"""``shardc bench``: how long compiling and running take, what each kernel takes, and what memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardc.cli.commands.run import (
    DeviceOption,
    InputsOption,
    PerRankOption,
    RanksOption,
    SeedOption,
    TuneOption,
    absolute,
    execute,
)
from shardc.cli.job_options import BindOption, HostfileOption, HostsOption, LauncherOption, job_options
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
    OverlapOption,
    PipelinedOption,
    PlanMemoryOption,
    PlanOption,
    ProfileInOption,
    Scheduling,
    WindowedOption,
)
from shardc.cli.view import View

__all__ = ["bench"]


def bench(
    file: FileArgument,
    *,
    steps: Annotated[int, typer.Option("--steps", metavar="K", min=1, max=10**9, help="Steps to time.")] = 20,
    warmup: Annotated[int, typer.Option("--warmup", min=0, max=10**9, help="Steps before the clock starts.")] = 3,
    profile: Annotated[
        bool, typer.Option("--profile", help="Time every kernel and compare it with the roofline.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="OUT.json", help="Write the last step for ui.perfetto.dev; implies --profile."),
    ] = None,
    profile_out: Annotated[
        Path | None,
        typer.Option("--profile-out", metavar="FILE", help="Write measured times for --profile-in; implies --profile."),
    ] = None,
    memory_svg: Annotated[
        Path | None, typer.Option("--memory-svg", metavar="OUT.svg", help="Draw the values in memory at each step.")
    ] = None,
    inputs: InputsOption = None,
    ranks: RanksOption = 0,
    devices_per_rank: PerRankOption = 0,
    hosts: HostsOption = None,
    hostfile: HostfileOption = None,
    bind: BindOption = "auto",
    option: LauncherOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    tune: TuneOption = 0.0,
    machine: MachineOption = "",
    overlap: OverlapOption = "",
    windowed_einsum: WindowedOption = "auto",
    pipelined_loops: PipelinedOption = "auto",
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    profile_in: ProfileInOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Time the stages of compilation and the steps of a program (median over --steps), and its communication.

    Example: shardc bench step.hlo --ranks 4 --steps 100, or shardc bench step.hlo --profile --trace step.json
    """
    from shardc.launcher.run.output_files import check_outputs
    from shardc.launcher.run.task import RunTask

    check_outputs(memory_svg=memory_svg, profile_out=profile_out, trace=trace)
    profile = profile or trace is not None or profile_out is not None
    task = RunTask(
        absolute(inputs), "", seed, steps, warmup, devices_per_rank, profile, absolute(trace), absolute(profile_out)
    )
    program = (file, mesh, annotate, annotations)
    scheduling = Scheduling(machine, overlap, profile_in, windowed_einsum, pipelined_loops, plan, memory)
    view = View(json, verbose, quiet)
    job = job_options(hosts, hostfile, bind, prefix=False, words=option, ranks=ranks)
    execute(view, program, task, ranks, device, memory_svg, tune, scheduling=scheduling, job=job)
