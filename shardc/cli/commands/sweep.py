"""``shardc sweep``: which mesh and which annotations make a step shortest on a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import (
    AnnotateOption,
    JsonOption,
    MeshOption,
    QuietOption,
    VerboseOption,
    parse_annotation,
    parse_mesh,
)
from shardc.cli.source import ProgramOpener, ServerOption, source
from shardc.cli.view import View

__all__ = ["sweep"]

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="The program. For weak scaling: one file per number of devices, in the same order."
    ),
]
DevicesOption = Annotated[
    str, typer.Option("--devices", metavar="N", help="8..4096 (powers of two), 8,16,24, or both; default: the mesh's.")
]
OverOption = Annotated[
    str,
    typer.Option(
        "--over", metavar="mesh,SETS.toml", help="What to vary: mesh sizes, and named sets of annotations from files."
    ),
]
SweepMachineOption = Annotated[
    str, typer.Option("--machine", metavar="NAME", help="A name such as h100-dgx or tpu-v5p, or a TOML file.")
]
PicturesOption = Annotated[
    Path | None, typer.Option("--pictures", metavar="FOLDER", help="Draw scaling and candidates (needs matplotlib).")
]
DaskOption = Annotated[
    str, typer.Option("--dask", metavar="ADDRESS", help="Use the workers of this Dask scheduler: tcp://host:8786.")
]


def sweep(
    files: FilesArgument,
    *,
    machine: SweepMachineOption,
    devices: DevicesOption = "",
    over: OverOption = "mesh",
    top: Annotated[int, typer.Option("--top", min=1, help="Candidates to show for each number of devices.")] = 5,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes at a time; 0: one per core.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Meshes to try per set and number of devices.")] = 64,
    refine: Annotated[int, typer.Option("--refine", min=0, help="Partition the N best for the machine, too.")] = 2,
    auto: Annotated[
        bool, typer.Option("--auto", help="Also find annotations for every mesh, as shardc auto does.")
    ] = False,
    uneven: Annotated[
        bool, typer.Option("--uneven", help="Also try shardings that do not divide evenly (padded).")
    ] = False,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Also rank programs that exceed memory.")
    ] = False,
    dask: DaskOption = "",
    map_axes: Annotated[str, typer.Option("--map", metavar="MAP", help="Placement of mesh axes on the machine.")] = "",
    pictures: PicturesOption = None,
    mesh: MeshOption = "",
    annotate: AnnotateOption = None,
    server: ServerOption = "",
    json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rank meshes and annotations of a program by the predicted step time on a machine. Needs no hardware.

    Under mpirun the other ranks assess candidates for rank 0. There, and with --dask, SHARDC_SERVER is ignored.

    Example: shardc sweep step.mlir --devices 8..512 --over mesh,sets.toml --machine h100-dgx --pictures scaling
    """
    from shardc.hlo.errors import InputError
    from shardc.launcher.jobs.mpi_environment import detect_launcher

    view, mpi = View(json, verbose, quiet), not dask and detect_launcher() is not None
    meshes, sets = _choices(over, annotate)
    wanted = parse_mesh(mesh)
    if server and dask:
        raise InputError("--server and --dask exclude each other", fix="give one of them")
    if server and auto:
        raise InputError("--server and --auto exclude each other", fix="omit --server: the search runs on this machine")
    if pictures is not None:
        from shardc.analysis.figures import make_folder

        make_folder(pictures)
    with source(view, server, asked=not (dask or mpi or auto), status=False) as here, _progress(view) as progress:
        result = _run(here, files, dask=dask, mpi=mpi, jobs=jobs, auto=auto)(
            devices=_counts(here, devices, files, wanted),
            machine=machine,
            mesh=wanted,
            sets=sets,
            meshes=meshes,
            mapping=map_axes,
            limit=limit,
            refine=refine,
            uneven=uneven,
            ignore_memory=ignore_memory,
            progress=progress,
        )
    if pictures is not None and result.ranked:
        view.log(f"Wrote {', '.join(str(p) for p in result.draw(pictures))}")
    view.result(result.to_dict() if json else None, lambda: _show(view, result, top))
    if not result.ranked:
        raise typer.Exit(1)


def _run(here: ProgramOpener, files: Sequence[Path], **workers: Any) -> Callable[..., Any]:
    """What sweeps: the service, or ``workers`` here."""
    from shardc.analysis.sweep.run import sweep as run

    if here.client is not None:
        return partial(here.client.sweep, list(files))
    return partial(run, list(files) if len(files) > 1 else files[0], **workers)


def _choices(over: str, annotate: Sequence[str] | None) -> tuple[bool, Any]:
    """Whether meshes are tried, and the sets of annotations."""
    from dataclasses import replace

    from shardc.analysis.sweep.sets import SetFile, join_files, read_sets
    from shardc.hlo.errors import InputError

    words = [w.strip() for w in over.split(",") if w.strip()]
    if not words:
        raise InputError("--over names nothing", fix="write --over mesh, --over mesh,sets.toml or --over sets.toml")
    if words.count("mesh") > 1:
        raise InputError("mesh is named twice", where="--over")
    files = [w for w in words if w != "mesh"]
    strange = next((w for w in files if not w.endswith(".toml")), None)
    if strange is not None:
        raise InputError(
            f"{strange!r} is neither mesh nor a .toml file", where="--over", fix="write --over mesh,sets.toml"
        )
    found = join_files([read_sets(f) for f in files])
    given = dict(parse_annotation(a) for a in annotate or ())
    sets = tuple(replace(s, specs={**s.specs, **given}) for s in found.sets)
    return "mesh" in words, SetFile(sets, found.axes, {**found.common, **given})


def _counts(here: ProgramOpener, devices: str, files: Sequence[Path], mesh: Any) -> tuple[int, ...]:
    """The numbers of devices; without the option that of ``--mesh``, or of the program's own."""
    from shardc.analysis.sweep.meshes import parse_devices
    from shardc.hlo.errors import InputError

    if devices:
        counts = parse_devices(devices)
    else:
        program = None if mesh is not None else here.load(files[0])
        count = mesh.size if program is None else program.num_devices
        if count == 1 and program is not None and program.mesh is None:
            raise InputError("the number of devices is missing", fix="give --devices 8..64 or --mesh data=8,model=4")
        counts = (count,)
    if len(files) > 1 and len(files) != len(counts):
        raise InputError(
            f"{len(files)} files were given for {len(counts)} numbers of devices ({', '.join(map(str, counts))})",
            where="--devices",
            fix="give one file per number of devices (weak scaling), in the same order",
        )
    return counts


@contextmanager
def _progress(view: View) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, when that is a terminal."""
    if view.quiet or not view.is_speaker or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("candidates"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, most: bar.update(task, completed=done, total=most)


def _show(view: View, result: Any, top: int) -> None:
    from shardc.analysis.sweep.result import CANDIDATE_COLUMNS, FAILED_COLUMNS, SCALING_COLUMNS

    if result.ranked:
        view.table(result.title, CANDIDATE_COLUMNS, result.candidate_rows(top))
        if result.note:
            view.text(result.note.strip())
    else:
        view.text(result.title)
    if len(result.scaling) > 1:
        view.text("")
        view.table(result.scaling_title, SCALING_COLUMNS, result.scaling_rows())
    if result.failed:
        view.text("")
        view.table("cannot run", FAILED_COLUMNS, result.failed_rows())
    if result.advice:
        view.text(f"\n{result.advice}")
