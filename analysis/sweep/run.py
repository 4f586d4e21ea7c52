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
from shardc.costs.machines.machine import GivenMapping, load_machine, mapping_text
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.launcher.arrays.meshes import as_mesh
from shardc.partitioner.program import SourceProgram, not_a_program

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
    mapping: GivenMapping | None = None,
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
    """Rank meshes and annotations of ``program`` by their predicted step time on ``machine``.

    - ``program``: a `Program` or the path of a file, for strong scaling over ``devices``. Weak scaling needs one
      program per number of devices: a function from that number to a `Program`, or as many programs as ``devices``.
    - ``devices``: numbers such as ``[8, 64]``, or ``"8..4096"`` for powers of two.
    - ``mesh``: the mesh to begin with, as `Program.annotate` takes it, for programs without one, and for more axes.
    - ``axes``: names of the axes of meshes; default: the program's. A mapping limits their sizes: ``{"data": "8..",
      "model": [1, 2, 4, 8]}``. With ``meshes=False`` only the program's own mesh is tried.
    - ``limit``: meshes per set of annotations and number of devices. Where there are more, some of all kinds are tried,
      then neighbours of the best.
    - ``sets``: annotations by the name of the set (``{"fsdp": {"w*": P("data")}}``), or the path of a TOML file.
    - ``auto``: one more set, with annotations that `auto` finds for each mesh.
    - ``mapping``: the placement of mesh axes on the machine, as for `Partitioned.simulate`.
    - ``refine``: this many of the best per number of devices are also partitioned for the machine, which takes longer.
    - ``jobs``: processes that work side by side (0: one per core). ``dask``: the address of a Dask scheduler, whose
      workers do the work. ``mpi``: all ranks of this job except 0 do the work; all ranks must call this, and get the
      result. The result does not depend on these.
    - ``progress``: called with the number of finished candidates and the total number.

    Outcomes are kept in the cache folder. Returns a `SweepResult`; candidates that cannot run are in its ``failed``,
    with the reason. Raises `InputError` for unknown machines, axes and impossible numbers of devices.

    >>> result = shardc.sweep(program, devices=[4, 8], machine="h100-dgx", jobs=1, refine=0)
    >>> result.best.mesh
    {'data': 1, 'model': 4}
    """
    counts = device_counts(devices)
    for what, number, least in (("limit", limit, 1), ("refine", refine, 0), ("jobs", jobs, 0)):
        if number < least:
            raise InputError(f"{what} is {number}", fix=f"give {least} or more")
    load_machine(str(machine))  # unknown machines are told before anything else
    weak, programs = _programs(program, counts, None if mesh is None else as_mesh(mesh))
    chosen = sets if isinstance(sets, SetFile) else sets_of(sets)
    planned = plan(
        [p.facts for p in programs],
        counts=counts,
        weak=weak,
        settings=SweepSettings(str(machine), mapping_text(mapping), uneven, ignore_memory),
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
    """Whether there is a program for each number of devices, rather than one for all, and the programs."""
    if isinstance(program, SourceProgram | str | Path):
        return False, [SweepProgram.of(program, mesh)]
    made = [program(n) for n in counts] if callable(program) else program
    if not isinstance(made, Iterable):
        raise not_a_program(program)
    return True, [SweepProgram.of(p, mesh) for p in made]
