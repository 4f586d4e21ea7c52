"""``shardc compile``: ahead of time, to files that C links without Python, or to code for GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.commands.run import TuneOption
from shardc.cli.options import (
    AnnotateOption,
    AnnotationsOption,
    FileArgument,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
)
from shardc.cli.schedule_options import PlanMemoryOption, PlanOption, plan_terms
from shardc.cli.source import ServerOption, source
from shardc.cli.view import View, bytes_text

__all__ = ["compile_program"]

OutOption = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the program in C (default: its own name).")]
CpuOption = Annotated[
    str,
    typer.Option(
        "--target-cpu",
        metavar="CPU",
        help="native (this machine's), x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, apple-m1, neoverse-n1, ...",
    ),
]
SystemOption = Annotated[
    str, typer.Option("--target-os", metavar="linux|macos", help="With --target-cpu: the operating system.")
]
TargetOption = Annotated[
    str, typer.Option("--target", metavar="NAME", help="cpu (files for C), or a kind of GPU, such as cuda:sm_90.")
]
LinkOption = Annotated[bool, typer.Option("--link", help="Also build the library and the example, with $CC.")]
BlasOption = Annotated[
    str, typer.Option("--blas", metavar="builtin|cblas|scipy", help="With --link: the library for matrix products.")
]
LibrariesOption = Annotated[
    list[str] | None,
    typer.Option("--library", metavar="ARG", help="With --link: passed to the linker, e.g. -lopenblas."),
]
MpiOption = Annotated[bool, typer.Option("--mpi", help="With --link: collectives over MPI ranks, with $MPICC.")]


def compile_program(
    file: FileArgument,
    *,
    output: OutOption,
    name: NameOption = "",
    target: TargetOption = "cpu",
    target_cpu: CpuOption = "native",
    target_os: SystemOption = "",
    link: LinkOption = False,
    blas: BlasOption = "builtin",
    library: LibrariesOption = None,
    mpi: MpiOption = False,
    tune: TuneOption = 0.0,
    plan: PlanOption = "",
    memory: PlanMemoryOption = "",
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    annotations: AnnotationsOption = None,
    server: ServerOption = "",
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compile a program ahead of time: an object, a C header and source, a manifest, an example and its Makefile.

    For a kind of GPU: PTX and cubins, a manifest that says what is launched, and what shardc.load_executable loads.
    Example: shardc compile step.hlo -o step --target-cpu x86-64-v3 && make -C step
    """
    from shardc.compiler.targets import check_target
    from shardc.hlo.errors import InputError

    view = View(json, verbose, quiet)
    check_target(target)
    planned = plan_terms(plan, memory)
    processors = {"--target-cpu": target_cpu != "native", "--target-os": target_os, "--link": link, "--mpi": mpi}
    beside = [option for option, is_given in processors.items() if is_given]
    if target != "cpu" and beside:
        raise InputError(f"{beside[0]} applies only to CPU targets", where=f"--target {target}", fix="omit it")
    with source(view, server) as here:
        given = here.open(file, mesh, annotate, annotations)
        partitioned = (given.tuned(tune) if tune else given).partition(**planned)
        if target != "cpu":
            _for_gpus(view, partitioned, target, output, name)
            return
        program, written = partitioned.compile_ahead(output, name=name, cpu=target_cpu, system=target_os)
    if link:
        from shardc.compiler.ahead.example import link as link_files

        written += link_files(program, output.absolute(), blas=blas, mpi=mpi, libraries=library or ())
    executable = program.executable
    facts = {
        "name": program.name,
        "folder": str(output),
        "target": str(program.target),
        "devices": executable.num_devices,
        "entry": f"{program.name}_run",
        "memory": dict(executable.memory),
        "collectives": len(executable.collectives),
        "needs": program.needs,
        "tuning": dict(executable.tuning),
        "files": [p.name for p in written],
    }
    view.result(facts, lambda: _render(view, facts, written))


def _for_gpus(view: View, partitioned: Any, target: str, output: Path, name: str) -> None:
    from shardc.analysis.ahead import write_gpu_ahead

    executable = partitioned.compile(target).executable
    written = write_gpu_ahead(executable, output, name=name)
    facts = {
        "name": executable.name,
        "folder": str(output),
        "target": executable.target,
        "devices": executable.num_devices,
        "memory": dict(executable.memory),
        "collectives": len(executable.collectives),
        "files": [p.name for p in written],
    }
    view.result(facts, lambda: _render(view, facts, written))


def _render(view: View, facts: dict[str, Any], written: list[Path]) -> None:
    rows = [(p.name, bytes_text(p.stat().st_size)) for p in written]
    view.table(f"{facts['name']} for {facts['target']}, in {facts['folder']}", ("file", "size"), rows)
