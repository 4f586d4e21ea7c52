"""`shardc.sweep`: predicts the step time of a program for many meshes and sets of annotations, and ranks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.mesh import Mesh
from shardc.launcher.meshes import as_mesh
from shardc.launcher.stages import Program
from shardc.launcher.sweep.assess import Outcome, Settings
from shardc.launcher.sweep.given import Given
from shardc.launcher.sweep.kept import KeptOutcomes
from shardc.launcher.sweep.meshes import Limit, Sizes, factorisations, parse_devices, parse_limit
from shardc.launcher.sweep.result import SweepResult
from shardc.launcher.sweep.rounds import Group, Progress, Rounds
from shardc.launcher.sweep.sets import SetFile, sets_of
from shardc.launcher.sweep.where import Where, run_on
from shardc.launcher.sweep.workers import Assessor
from shardc.sharding.resize import manual_border
from shardc.sharding.spec import spec_text

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
    progress: Progress | None = None,
) -> SweepResult:
    """Rank meshes and annotations of ``program`` by the step time that is predicted for ``machine``.

    ``program`` is a `Program` (or the path of a file): its strong scaling over ``devices`` (``[8, 64]``, ``"8..4096"``
    for powers of two). Shapes are part of a program, so weak scaling needs one per number of devices: a function from
    the number of devices to a `Program`, or as many programs as ``devices``.

    ``sets`` are annotations by name of the set (``{"fsdp": {"w*": P("data")}, ...}``) or the path of a TOML file
    (`shardc.launcher.sweep.sets`). ``mesh`` is the one to begin with, as `Program.annotate` takes it: for programs
    without a mesh, and more axes. ``axes`` names the axes of meshes, default: the program's; with limits of their sizes
    where it is a mapping (``{"data": "8..", "model": [1, 2, 4, 8]}``). Without ``meshes`` only the program's own
    mesh is tried. Per set and number of devices at most ``limit`` meshes are: when there are more, some all over and
    then neighbours of the best. ``mapping`` says where axes lie on the machine.

    All are partitioned for the fewest bytes; the ``refine`` best ones per number of devices are then partitioned for
    the machine too, which takes longer, and keep what is faster. ``progress`` hears how many candidates are done, and
    of how many.

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
    from shardc.collectives.machine import load_machine

    counts = _counts(devices)
    for what, number, least in (("limit", limit, 1), ("refine", refine, 0), ("jobs", jobs, 0)):
        if number < least:
            raise InputError(f"{what}={number}", fix=f"give {least} or more")
    load_machine(str(machine))  # unknown machines are told before anything else
    weak, programs = _programs(program, counts, None if mesh is None else as_mesh(mesh))
    found = _in_words(sets if isinstance(sets, SetFile) else sets_of(sets))
    names, limits = _axes(axes, found, programs[0], meshes)
    settings = Settings(str(machine), mapping, uneven, ignore_memory)
    groups = [
        Group(number, made.source, s, names, _meshes(made, n, names, {**limits, **s.limits}, meshes), limit, n)
        for n, (number, made) in zip(counts, _numbered(programs, counts), strict=True)
        for s in found.sets
    ]
    _need_candidates(groups, names)
    kept = KeptOutcomes(programs[0].program.config, settings.machine)
    order = {s.name: k for k, s in enumerate(found.sets)}

    def ranked(assessor: Assessor) -> SweepResult:
        outcomes = Rounds(assessor, kept, groups, settings, progress or _quiet, refine, len(counts)).run()
        return SweepResult(programs[0].module.name, str(machine), weak, tuple(sorted(outcomes, key=_rank(order))))

    words = all(isinstance(spec, str) for s in found.sets for spec in s.specs.values())
    portable = words and all(p.source is not None for p in programs)
    return run_on(Where(jobs, dask, mpi), programs, settings, _work(groups, refine), portable, ranked)


def _quiet(done: int, most: int) -> None:
    pass


def _rank(order: Mapping[str, int]) -> Callable[[Outcome], Any]:
    """By devices, those that run first, by time; equal ones in the order in which sets were given."""
    return lambda o: (o.devices, not o.runs, o.step_seconds if o.runs else 0.0, order[o.set], [*o.mesh.values()][::-1])


def _counts(devices: int | str | Iterable[int]) -> tuple[int, ...]:
    if isinstance(devices, str):
        return parse_devices(devices)
    counts = (devices,) if isinstance(devices, int) else tuple(devices)
    if not counts or not all(type(n) is int and n > 0 for n in counts):
        raise InputError(f"devices={devices!r}", fix='give numbers of devices: devices=[8, 64], or devices="8..4096"')
    return tuple(sorted(set(counts)))


def _programs(program: Any, counts: Sequence[int], mesh: Mesh | None) -> tuple[bool, list[Given]]:
    """One program, or one per number of devices; is it the latter?"""
    if isinstance(program, Program | str | Path):
        return False, [Given.of(program, mesh)]
    made = [program(n) for n in counts] if callable(program) else list(program)
    if len(made) != len(counts):
        raise InputError(
            f"{len(made)} programs for {len(counts)} numbers of devices ({', '.join(map(str, counts))})",
            fix="weak scaling takes one program per number of devices, in their order",
        )
    return True, [Given.of(p, mesh) for p in made]


def _numbered(programs: Sequence[Given], counts: Sequence[int]) -> list[tuple[int, Given]]:
    return [(k, programs[k]) for k in range(len(counts))] if len(programs) > 1 else [(0, programs[0])] * len(counts)


def _axes(
    axes: Mapping[str, Any] | Sequence[str] | None, found: SetFile, given: Given, meshes: bool
) -> tuple[tuple[str, ...], dict[str, Limit]]:
    """The axes of meshes and the limits that hold for all sets."""
    own = given.program.mesh
    limits = {n: parse_limit(v, f"axes[{n!r}]") for n, v in axes.items()} if isinstance(axes, Mapping) else {}
    named = [n for n, _ in own.axes] if own is not None else list(axes or found.axes)
    names = tuple(dict.fromkeys([*named, *(axes or ())]))
    if not names:
        raise InputError(
            "the program has no mesh, and no axis is named",
            fix="give --mesh data=1,model=1 or a table [axes] in the sets' file (mesh= or axes= in Python)",
        )
    unknown = next((a for a in found.axes if a not in names), None)
    if unknown is not None:
        fix = f"its mesh has {', '.join(names)}; --mesh {unknown}=1 adds an axis"
        raise InputError(f"the program has no axis {unknown!r}, of which the sets speak", fix=fix)
    manual = manual_border(given.module) if meshes else None
    if manual is not None:
        raise UnsupportedError(
            f"the program has manual computations (shard_map), whose shapes are for its mesh: only {own} can be tried",
            where=f"%{manual.name}" + (f" ({manual.source})" if manual.source else ""),
            fix="sweep annotations only (--over annotations.toml), or export the program once per mesh",
        )
    return names, limits


def _meshes(
    given: Given, devices: int, names: Sequence[str], limits: Mapping[str, Limit], free: bool
) -> tuple[Sizes, ...]:
    if free:
        return tuple(factorisations(devices, names, limits))
    own: Mesh | None = given.program.mesh
    if own is None or own.size != devices:
        what = "the program has no mesh" if own is None else f"the program's mesh {own} has {own.size} devices"
        raise InputError(f"{what}, {devices} are asked for", fix="--over mesh tries other meshes; --mesh gives one")
    return (tuple(size for _, size in own.axes),)


def _need_candidates(groups: Sequence[Group], names: Sequence[str]) -> None:
    empty = [g for g in groups if not g.search.meshes]
    if len(empty) == len(groups):
        counts = ", ".join(map(str, sorted({g.devices for g in empty})))
        raise InputError(
            f"no mesh over {', '.join(names)} has {counts} devices within the limits",
            fix="wider limits in [axes], or another number of devices",
        )


def _work(groups: Sequence[Group], refine: int) -> int:
    """How many candidates there are at most."""
    return sum(g.search.most for g in groups) + refine * len({g.devices for g in groups})


def _in_words(given: SetFile) -> SetFile:
    """The sets with specs as text, which every worker understands, where text has words for all of them."""
    try:
        sets = [replace(s, specs={name: spec_text(spec) for name, spec in s.specs.items()}) for s in given.sets]
    except ShardcError:  # they stay in this process, and what is no spec becomes its candidate's reason there
        return given
    return replace(given, sets=tuple(sets))
