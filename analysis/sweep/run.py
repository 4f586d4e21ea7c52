"""`shardc.sweep`: predicts the step time of a program for many meshes and sets of annotations, and ranks them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardc.analysis.sweep.assess import SweepSettings
from shardc.analysis.sweep.inputs import SweepProgram
from shardc.analysis.sweep.meshes import device_counts
from shardc.analysis.sweep.plan import plan, with_text_specs
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.search_rounds import Progress
from shardc.analysis.sweep.sets import SetFile, sets_of, with_auto
from shardc.analysis.sweep.where import Where, run_on
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.launcher.arrays.meshes import as_mesh
from shardc.partitioner.program import SourceProgram

__all__ = ["Progress", "sweep"]


def sweep(
    program: Any,
    *,
    devices: int | str | Iterable[int],
    machine: str | Path,
    mesh: Any = None,
    sets: Any = None,
    axes: Mapping[str, Any] | Sequence[str] | None = None,
    meshes: bool = True,
    mapping: str = "",
    limit: int = 64,
    refine: int = 2,
    uneven: bool = False,
    ignore_memory: bool = False,
    jobs: int = 0,
    dask: str = "",
    mpi: bool = False,
    auto: bool = False,
    progress: Progress | None = None,
) -> SweepResult:
    """Rank meshes and annotations of ``program`` by the step time that is predicted for ``machine``.

    ``program`` is a `Program` (or the path of a file): its strong scaling over ``devices`` (``[8, 64]``, ``"8..4096"``
    for powers of two). Shapes are part of a program, so weak scaling needs one per number of devices: a function from
    the number of devices to a `Program`, or as many programs as ``devices``.

    ``sets`` are annotations by name of the set (``{"fsdp": {"w*": P("data")}, ...}``) or the path of a TOML file
    (`shardc.analysis.sweep.sets`). ``mesh`` is the one to begin with, as `Program.annotate` takes it: for programs
    without a mesh, and more axes. ``axes`` names the axes of meshes, default: the program's; with limits of their sizes
    where it is a mapping (``{"data": "8..", "model": [1, 2, 4, 8]}``). Without ``meshes`` only the program's own
    mesh is tried. Per set and number of devices at most ``limit`` meshes are: when there are more, some all over and
    then neighbours of the best. ``mapping`` says where axes lie on the machine.

    With ``auto`` one more set, of this name, has annotations that are found for each mesh (`shardc.auto`), in
    `Outcome.annotations`; such candidates are partitioned for the machine.

    All others are partitioned for the fewest bytes; the ``refine`` best ones per number of devices are then partitioned
    for the machine too, which takes longer, and keep what is faster. ``progress`` hears how many candidates are done,
    and of how many.

    ``jobs`` processes work side by side (0: one per core); or with ``dask`` the workers of the cluster whose scheduler
    has that address; or with ``mpi`` the ranks of this job but 0, all of which call this together and get the result.
    The result does not depend on it; a candidate whose worker crashed is in `SweepResult.failed`, and the others go on.
    Programs with custom calls of their own, and specs that text has no words for, stay in this process; outcomes of
    others are kept in the cache folder.

    Raises `InputError` for unknown machines, axes and impossible numbers of devices; candidates that cannot run are in
    `SweepResult.failed`, with the reason. Example::

        result = shardc.sweep(program, devices="8..512", machine="h100-dgx", sets="annotations.toml")
        print(result, result.best.mesh)
    """
    from shardc.costs.machines.machine import load_machine

    counts = device_counts(devices)
    for what, number, least in (("limit", limit, 1), ("refine", refine, 0), ("jobs", jobs, 0)):
        if number < least:
            raise InputError(f"{what}={number}", fix=f"give {least} or more")
    load_machine(str(machine))  # unknown machines are told before anything else
    weak, programs = _programs(program, counts, None if mesh is None else as_mesh(mesh))
    chosen = sets if isinstance(sets, SetFile) else sets_of(sets)
    planned = plan(
        [p.facts for p in programs],
        counts=counts,
        weak=weak,
        settings=SweepSettings(str(machine), mapping, uneven, ignore_memory),
        sets=with_text_specs(with_auto(chosen) if auto else chosen),
        axes=axes,
        meshes=meshes,
        limit=limit,
        refine=refine,
    )
    return run_on(Where(jobs, dask, mpi), programs, planned, progress or _quiet)


def _quiet(done: int, most: int) -> None:
    pass


def _programs(program: Any, counts: Sequence[int], mesh: Mesh | None) -> tuple[bool, list[SweepProgram]]:
    """One program, or one per number of devices; is it the latter?"""
    if isinstance(program, SourceProgram | str | Path):
        return False, [SweepProgram.of(program, mesh)]
    made = [program(n) for n in counts] if callable(program) else program
    return True, [SweepProgram.of(p, mesh) for p in made]
