"""`shardc.sweep`: predicts the step time of a program for many meshes and sets of annotations, and ranks them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.mesh import Mesh
from shardc.launcher.meshes import as_mesh
from shardc.launcher.stages import Program
from shardc.launcher.sweep.assess import Candidate, Outcome, Settings, assess
from shardc.launcher.sweep.kept import KeptOutcomes
from shardc.launcher.sweep.meshes import Limit, MeshSearch, Sizes, factorisations, parse_devices, parse_limit
from shardc.launcher.sweep.result import SweepResult
from shardc.launcher.sweep.sets import AnnotationSet, SetFile, sets_of
from shardc.launcher.sweep.workers import Assessor, Source, Task, started
from shardc.sharding.resize import manual_border

__all__ = ["Progress", "sweep"]

#: What has been done, and how much that is of how much at most.
Progress = Callable[[int, int], None]

#: Candidates that are worth a process of their own, which takes a second to start.
_PER_PROCESS = 4


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
    the machine too, which takes longer, and keep what is faster. ``jobs`` processes work side by side (0: one per
    core); the result does not depend on it. Programs from NumPy functions and with custom calls of their own stay in
    this process; outcomes of others are kept in the cache folder. ``progress`` hears how many candidates are done, and
    of how many.

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
    found = sets if isinstance(sets, SetFile) else sets_of(sets)
    names, limits = _axes(axes, found, programs[0], meshes)
    settings = Settings(str(machine), mapping, uneven, ignore_memory)
    groups = [
        _Group(number, made, s, names, _meshes(made, n, names, {**limits, **s.limits}, meshes), limit, n)
        for n, (number, made) in zip(counts, _numbered(programs, counts), strict=True)
        for s in found.sets
    ]
    _need_candidates(groups, names)
    kept = KeptOutcomes(programs[0].program.config, settings.machine)
    with _assessors(programs, groups, jobs, refine) as assessor:
        outcomes = _Rounds(assessor, kept, groups, settings, progress or _quiet, refine, len(counts)).run()
    order = {s.name: k for k, s in enumerate(found.sets)}
    return SweepResult(programs[0].module.name, str(machine), weak, tuple(sorted(outcomes, key=_rank(order))))


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


def _programs(program: Any, counts: Sequence[int], mesh: Mesh | None) -> tuple[bool, list[_Given]]:
    """One program, or one per number of devices; is it the latter?"""
    if isinstance(program, Program | str | Path):
        return False, [_Given.of(program, mesh)]
    made = [program(n) for n in counts] if callable(program) else list(program)
    if len(made) != len(counts):
        raise InputError(
            f"{len(made)} programs for {len(counts)} numbers of devices ({', '.join(map(str, counts))})",
            fix="weak scaling takes one program per number of devices, in their order",
        )
    return True, [_Given.of(p, mesh) for p in made]


@dataclass(frozen=True)
class _Given:
    """A program, and how another process gets it (None: not at all)."""

    program: Program
    source: Source | None

    @staticmethod
    def of(given: Any, mesh: Mesh | None) -> _Given:
        if isinstance(given, str | Path):
            source = Source(path=str(Path(given).absolute()), mesh=() if mesh is None else tuple(mesh.axes))
            return _Given(source.read(), source)
        if not isinstance(given, Program):
            fix = "shardc.load, from_jax or trace make one"
            raise InputError(f"a {type(given).__name__} is not a program", fix=fix)
        program = given if mesh is None else given.annotate(mesh=mesh)
        try:
            return _Given(program, None if program.config.custom_calls else Source(text=program.as_stablehlo()))
        except UnsupportedError:
            return _Given(program, None)

    @property
    def module(self) -> Any:
        return self.program.module


def _numbered(programs: Sequence[_Given], counts: Sequence[int]) -> list[tuple[int, _Given]]:
    return [(k, programs[k]) for k in range(len(counts))] if len(programs) > 1 else [(0, programs[0])] * len(counts)


def _axes(
    axes: Mapping[str, Any] | Sequence[str] | None, found: SetFile, given: _Given, meshes: bool
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
    given: _Given, devices: int, names: Sequence[str], limits: Mapping[str, Limit], free: bool
) -> tuple[Sizes, ...]:
    if free:
        return tuple(factorisations(devices, names, limits))
    own: Mesh | None = given.program.mesh
    if own is None or own.size != devices:
        what = "the program has no mesh" if own is None else f"the program's mesh {own} has {own.size} devices"
        raise InputError(f"{what}, {devices} are asked for", fix="--over mesh tries other meshes; --mesh gives one")
    return (tuple(size for _, size in own.axes),)


def _need_candidates(groups: Sequence[_Group], names: Sequence[str]) -> None:
    empty = [g for g in groups if not g.search.meshes]
    if len(empty) == len(groups):
        counts = ", ".join(map(str, sorted({g.devices for g in empty})))
        raise InputError(
            f"no mesh over {', '.join(names)} has {counts} devices within the limits",
            fix="wider limits in [axes], or another number of devices",
        )


class _Group:
    """The meshes of one set and one number of devices, and what has been found of them."""

    def __init__(
        self,
        source: int,
        given: _Given,
        chosen: AnnotationSet,
        axes: Sequence[str],
        meshes: tuple[Sizes, ...],
        limit: int,
        devices: int,
    ) -> None:
        self.source, self.given, self.set, self.axes, self.devices = source, given, chosen, axes, devices
        self.search = MeshSearch(meshes, limit)
        self.found: dict[Sizes, Outcome] = {}

    def next(self) -> list[Sizes]:
        """The meshes of the next round."""
        if not self.found:
            return self.search.first()
        return self.search.following({m: o.step_seconds if o.runs else math.inf for m, o in self.found.items()})

    def candidate(self, mesh: Sizes) -> Candidate:
        sizes = dict(zip(self.axes, mesh, strict=True))
        return Candidate(self.devices, sizes, self.set.name, self.set.specs, self.source)


def _assessors(
    programs: Sequence[_Given], groups: Sequence[_Group], jobs: int, refine: int
) -> AbstractContextManager[Assessor]:
    """What runs candidates: processes, or this one where there is little to do or a program cannot leave it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = sum(g.search.most for g in groups) + refine * len({g.devices for g in groups})
    wanted = min(jobs or cores, max(1, work // _PER_PROCESS))
    if wanted > 1 and all(p.source is not None for p in programs):
        return started(wanted)

    def here(tasks: Sequence[Task], done: Callable[[], None]) -> list[Outcome]:
        out = []
        for task in tasks:
            out.append(assess(programs[task.candidate.source].program, task.candidate, task.settings))
            done()
        return out

    return nullcontext(here)


@dataclass
class _Rounds:
    """Rounds of candidates until every group's search is over, then the best ones once more."""

    assessor: Assessor
    kept: KeptOutcomes
    groups: Sequence[_Group]
    settings: Settings
    progress: Progress
    refine: int
    counts: int
    done: int = 0

    def run(self) -> list[Outcome]:
        while wave := [(g, mesh) for g in self.groups for mesh in g.next()]:
            self._assess(wave, self.settings)
        best = self._best()
        before = {(id(g), mesh): g.found[mesh] for g, mesh in best}
        if best:
            self._assess(best, replace(self.settings, for_machine=True))
        for g, mesh in best:
            old = before[id(g), mesh]
            if not g.found[mesh].runs or g.found[mesh].step_seconds > old.step_seconds:
                g.found[mesh] = old
        return [o for g in self.groups for o in g.found.values()]

    def _best(self) -> list[tuple[_Group, Sizes]]:
        """The fastest by number of devices."""
        every: dict[int, list[tuple[float, int, Sizes, _Group]]] = {}
        for k, g in enumerate(self.groups):
            runs = ((o.step_seconds, k, mesh, g) for mesh, o in g.found.items() if o.runs)
            every.setdefault(g.devices, []).extend(runs)
        return [(g, mesh) for rows in every.values() for _, _, mesh, g in sorted(rows, key=_order)[: self.refine]]

    def _assess(self, wave: Sequence[tuple[_Group, Sizes]], settings: Settings) -> None:
        most = sum(g.search.most for g in self.groups) + self.refine * self.counts

        def done() -> None:
            self.done += 1
            self.progress(self.done, max(most, self.done))

        tasks = [Task(g.given.source or Source(), g.candidate(mesh), settings) for g, mesh in wave]
        known = self.kept.find(tasks)
        for outcome in known:
            if outcome is not None:
                done()
        new = [task for task, outcome in zip(tasks, known, strict=True) if outcome is None]
        made = iter(self.assessor(new, done))
        for (g, mesh), task, outcome in zip(wave, tasks, known, strict=True):
            if outcome is None:
                outcome = next(made)
                self.kept.keep(task, outcome)
            g.found[mesh] = outcome


def _order(row: tuple[float, int, Sizes, _Group]) -> tuple[float, int, Sizes]:
    return row[:3]
