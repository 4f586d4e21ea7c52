"""``shardc run``: compile a program and run it on virtual devices or MPI ranks; also what `shardc.cli.commands.bench`
shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.job_options import (
    BindOption,
    HostfileOption,
    HostsOption,
    LauncherOption,
    PrefixOption,
    job_options,
)
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
from shardc.cli.schedule_options import (
    MachineOption,
    OverlapOption,
    PlanMemoryOption,
    PlanOption,
    ProfileInOption,
    Scheduling,
)
from shardc.cli.view import View, bytes_text, seconds_text
from shardc.hlo.units import count_text

__all__ = [
    "DeviceOption", "InputsOption", "PerRankOption", "RanksOption", "SeedOption", "TuneOption", "absolute", "execute",
    "run", "show_outcome",
]  # fmt: skip

InputsOption = Annotated[Path | None, typer.Option("--inputs", metavar="IN.npz", help="Arguments in0, in1, ...")]
OutputsOption = Annotated[Path | None, typer.Option("--outputs", metavar="OUT.npz", help="Write out0, out1, ... here.")]
RanksOption = Annotated[
    int, typer.Option("--ranks", metavar="N", help="Start N MPI ranks; 0: virtual devices, or the job it runs in.")
]
PerRankOption = Annotated[
    int, typer.Option("--devices-per-rank", metavar="K", help="Most devices of a rank; 0: as few as possible.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="cpu, cuda (one rank per GPU) or cuda-emulated.")
]
TuneOption = Annotated[
    float, typer.Option("--tune", metavar="SECONDS", min=0, help="Try tile sizes, chunks and fusions for this long.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of random arguments, without --inputs.")]


def run(
    file: FileArgument,
    *,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    ranks: RanksOption = 0,
    devices_per_rank: PerRankOption = 0,
    hosts: HostsOption = None,
    hostfile: HostfileOption = None,
    bind: BindOption = "auto",
    prefix: PrefixOption = False,
    option: LauncherOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    tune: TuneOption = 0.0,
    machine: MachineOption = "",
    overlap: OverlapOption = "",
    profile_in: ProfileInOption = None,
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Partition, compile and run a program: on virtual devices, on --ranks N, or in the MPI job that started it.

    Example: shardc run step.hlo --inputs in.npz --outputs out.npz --ranks 4
    """
    from shardc.launcher.run.task import RunTask

    task = RunTask(absolute(inputs), absolute(outputs), seed, devices_per_rank=devices_per_rank)
    program = (file, mesh, annotate, annotations)
    job = job_options(hosts, hostfile, bind, prefix, option, ranks)
    scheduling = Scheduling(machine, overlap, profile_in, plan=plan, memory=memory)
    execute(View(json, verbose, quiet), program, task, ranks, device, tune=tune, job=job, scheduling=scheduling)


def absolute(path: Path | None) -> str:
    """The path as text for a `RunTask`, empty for None; ``-`` stays."""
    return "" if path is None else "-" if str(path) == "-" else str(path.absolute())


def execute(
    view: View,
    program: tuple[Any, ...],
    task: Any,
    ranks: int,
    device: str,
    memory_picture: Path | None = None,
    tune: float = 0.0,
    job: Any = None,
    scheduling: Scheduling | None = None,
) -> None:
    """Compile ``program`` (the arguments of `open_program`), carry out ``task`` on it, and show the outcome.

    ``job`` are the `JobOptions` for ranks that are started, ``scheduling`` says what is to overlap.
    """
    from shardc.hlo.errors import InputError
    from shardc.launcher.driver.checked import Unpartitioned
    from shardc.launcher.driver.compiled import job_config
    from shardc.launcher.jobs.mpi_environment import detect_launcher
    from shardc.launcher.run.task import run_in_job, run_task, start_ranks

    config = job_config()
    launcher = detect_launcher()
    if launcher is not None and ranks:
        raise InputError(
            f"--ranks {ranks} cannot start a job inside of one started by {launcher.title}",
            fix="omit --ranks: the program runs on the ranks of this job",
        )
    seconds: dict[str, float] = {}
    sources: list[Any] = []

    def make() -> Any:
        file, _, _, annotations = program
        _check_request(task, ranks, (file, annotations))
        partitioned = (scheduling or Scheduling()).scheduled(_on_ranks(open_program(*program), ranks))
        sources.append(partitioned)
        compiled = partitioned.compile(device, profile=task.profile, tune=tune or None)
        if memory_picture is not None:
            compiled.memory_picture(memory_picture)
        seconds.update(compiled.seconds)
        executable = compiled.executable
        view.detail(f"compiled {executable.name} for {count_text(executable.num_devices, 'device')}: {_times(seconds)}")
        # Ranks show the times of the stages too; they travel with the executable.
        return replace(executable, seconds={**executable.seconds, **seconds})

    if launcher is not None:
        show_outcome(view, run_in_job(make, task, config, lambda: sources[0]))
    elif ranks > 1:
        flags = [f for f, on in (("--json", view.json), ("-v", view.verbose), ("-q", view.quiet)) if on]
        executable = make()
        whole = Unpartitioned.of(sources[0].propagated) if config.check else None
        code = start_ranks(executable, task, ranks, config, flags, job, whole)
        if code:
            raise typer.Exit(code)
    else:
        executable = make()
        if ranks or task.devices_per_rank:
            task = replace(task, devices_per_rank=task.devices_per_rank or executable.num_devices)
        show_outcome(view, run_task(executable, task, config, lambda: sources[0]))


def _on_ranks(program: Any, ranks: int) -> Any:
    """The program, compiled for ranks that this process starts."""
    from shardc.launcher.driver.compiled import spare_cores

    return replace(program, config=replace(program.config, spare_cores=spare_cores(ranks))) if ranks > 1 else program


def _check_request(task: Any, ranks: int, sources: Sequence[Path | None]) -> None:
    """What can be told before anything of ``sources`` and of the task's inputs is read."""
    from shardc.hlo.errors import InputError
    from shardc.launcher.jobs.mpi_environment import check, find_library
    from shardc.launcher.run.npz import check_inputs
    from shardc.launcher.run.output_files import check_outputs

    if ranks < 0 or task.devices_per_rank < 0:
        given = f"--ranks {ranks}" if ranks < 0 else f"--devices-per-rank {task.devices_per_rank}"
        raise InputError(f"{given} is negative", fix="give at least 1, or omit it for virtual devices")
    if ranks > 1:
        check(None, find_library())
    if task.inputs:
        check_inputs(Path(task.inputs))
    inputs, outputs, trace, profile_out = (
        Path(path) if path else None for path in (task.inputs, task.outputs, task.trace, task.profile_out)
    )
    check_outputs(*sources, inputs, outputs=outputs, trace=trace, profile_out=profile_out)


def show_outcome(view: View, outcome: dict[str, Any]) -> None:
    """Print what `shardc.launcher.run.task.run_task` returned."""
    view.result(outcome, lambda: _render(view, outcome))


#: The parts of the stage ``compile`` of which times are known.
_PARTS = ("lower", "emit", "native")


def _stages(seconds: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """A row for each stage, in their order; parts of the compilation are indented."""
    for stage, spent in seconds.items():
        if stage not in (*_PARTS, "cache"):
            yield f"{stage}, cached" if stage == "compile" and "cache" in seconds else stage, seconds_text(spent)
    yield from ((f"  {part}", seconds_text(seconds[part])) for part in _PARTS if part in seconds)


def _render(view: View, outcome: dict[str, Any]) -> None:
    where = f"{count_text(outcome['devices'], 'device')} on {outcome['ranks']} " + (
        "ranks" if outcome["ranks"] > 1 else "process"
    )
    if "steps" not in outcome:
        rows = [(r["index"], r["name"], r["dtype"], r["shape"], r["checksum"]) for r in outcome["results"]]
        view.table(f"{outcome['program']}: {where}", ("result", "name", "dtype", "shape", "checksum"), rows)
        return
    view.table(f"{outcome['program']}: {where}", ("stage", "seconds"), list(_stages(outcome["seconds"])))
    extremes = f"fastest {seconds_text(outcome['fastest_step_seconds'])}, "
    extremes += f"slowest {seconds_text(outcome['slowest_step_seconds'])} over {count_text(outcome['steps'], 'step')}"
    view.text(
        f"step: median {seconds_text(outcome['step_seconds'])}, {extremes}; "
        f"{count_text(outcome['collectives_per_step'], 'collective')} per step; "
        f"{bytes_text(outcome['peak_bytes'])} per device"
    )
    if outcome["communication"]["collectives"]:
        _communication(view, outcome["communication"])
    if "tuning" in outcome:
        view.text("tuned: " + "; ".join(_choices(outcome["tuning"])))
    if "profile" in outcome:
        from shardc.launcher.run.profile import COLUMNS, table_cells

        view.table(outcome["profile"]["title"], COLUMNS, table_cells(outcome["profile"]["summary"]))


def _communication(view: View, found: dict[str, Any]) -> None:
    from shardc.launcher.driver.communication import COMMUNICATION_COLUMNS, communication_cells

    exposed, hidden = (seconds_text(found[f"{k}_seconds"]) for k in ("exposed", "hidden"))
    title = f"communication: {exposed} exposed ({100 * found['exposed_of_step']:.0f}% of the step), {hidden} hidden"
    view.table(title, COMMUNICATION_COLUMNS, communication_cells(found["collectives"]))


def _choices(tuning: dict[str, Any]) -> list[str]:
    """What was chosen instead of the defaults, for the program and by kernel."""
    parts = {"the program": tuning["program"], **tuning["kernels"]}
    words = [f"{k} with {', '.join(f'{n} {v}' for n, v in c.items())}" for k, c in parts.items() if c]
    return words or ["no variant is faster than the defaults"]


def _times(seconds: dict[str, float]) -> str:
    return ", ".join(f"{k} {seconds_text(v)}" for k, v in seconds.items())
