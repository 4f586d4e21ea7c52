"""What a sweep tries: from what is asked of it and what is known of its programs, which are not needed for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardc.analysis.sweep.assess import Outcome, SweepSettings
from shardc.analysis.sweep.meshes import Limit, Sizes, axes_to_try, factorisations, parse_limit
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.result_cache import OutcomeCache
from shardc.analysis.sweep.search_rounds import Group, Progress, SearchRounds
from shardc.analysis.sweep.sets import SetFile
from shardc.analysis.sweep.workers import Assessor
from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.notations.annotate import named_axes
from shardc.sharding.notations.partition_spec import spec_text

__all__ = ["SweepFacts", "SweepPlan", "plan", "with_text_specs"]

#: Candidates that are worth a process of their own, which takes a second to start.
_PER_PROCESS = 4


@dataclass(frozen=True, slots=True)
class SweepFacts:
    """What a sweep knows of a program: its ``name``, its own ``mesh`` if it has one, where its first manual computation
    (`shard_map`) is (empty: it has none), and ``digest``, that of what other processes read it from (empty: it cannot
    leave this one)."""

    name: str
    mesh: Mapping[str, int] | None = None
    manual: str = ""
    digest: str = ""


@dataclass(frozen=True)
class SweepPlan:
    """A sweep before its candidates are assessed, for one use. ``sets`` are their names in the order in which they were
    given, ``counts`` how many numbers of devices there are."""

    name: str
    weak: bool
    settings: SweepSettings
    groups: tuple[Group, ...]
    sets: tuple[str, ...]
    refine: int
    counts: int

    @property
    def work(self) -> int:
        """How many candidates there are at most."""
        return sum(g.search.most for g in self.groups) + self.refine * self.counts

    @property
    def has_text_specs(self) -> bool:
        """Whether other processes understand all annotations, because these are text."""
        return all(isinstance(spec, str) for g in self.groups for spec in g.set.specs.values())

    def workers(self, most: int) -> int:
        """How many of ``most`` there is enough to do for."""
        return min(most, max(1, self.work // _PER_PROCESS))

    def find(self, assessor: Assessor, kept: OutcomeCache, progress: Progress) -> SweepResult:
        """Assess the candidates, and rank them."""
        outcomes = SearchRounds(assessor, kept, self.groups, self.settings, progress, self.refine, self.work).run()
        order = {name: k for k, name in enumerate(self.sets)}
        ranked = tuple(sorted(outcomes, key=_rank(order)))
        untried = sum(len(g.search.meshes) - len(g.found) for g in self.groups)
        return SweepResult(self.name, self.settings.machine, self.weak, ranked, untried)


def plan(
    programs: Sequence[SweepFacts],
    *,
    counts: Sequence[int],
    weak: bool,
    settings: SweepSettings,
    sets: SetFile,
    axes: Mapping[str, Any] | Sequence[str] | None,
    meshes: bool,
    limit: int,
    refine: int,
) -> SweepPlan:
    """The plan of `shardc.analysis.sweep.run.sweep`, of one program or (``weak`` scaling) one for each of ``counts``.

    Raises `InputError` for unknown axes and impossible numbers of devices, `UnsupportedError` for programs that cannot
    have other meshes.
    """
    if weak and len(programs) != len(counts):
        raise InputError(
            f"{len(programs)} programs were given for {len(counts)} numbers of devices ({', '.join(map(str, counts))})",
            fix="give one program per number of devices (weak scaling), in the same order",
        )
    names, limits = _axes(axes, sets, programs[0], meshes)
    numbered = [*enumerate(programs)] if len(programs) > 1 else [(0, programs[0])] * len(counts)
    groups = tuple(
        Group(number, seen.digest, s, names, _meshes(seen, n, names, {**limits, **s.limits}, meshes), limit, n)
        for n, (number, seen) in zip(counts, numbered, strict=True)
        for s in sets.sets
    )
    _need_candidates(groups, names)
    return SweepPlan(programs[0].name, weak, settings, groups, tuple(s.name for s in sets.sets), refine, len(counts))


def with_text_specs(given: SetFile) -> SetFile:
    """The sets with specs as text, which every worker understands, where text has words for all of them."""
    try:
        sets = [replace(s, specs={name: spec_text(spec) for name, spec in s.specs.items()}) for s in given.sets]
    except ShardcError:  # they stay in this process, and what is no spec becomes its candidate's reason there
        return given
    return replace(given, sets=tuple(sets))


def _rank(order: Mapping[str, int]) -> Callable[[Outcome], Any]:
    """By devices, those that run first, by time; equal ones in the order in which sets were given."""
    return lambda o: (o.devices, not o.runs, o.step_seconds if o.runs else 0.0, order[o.set], [*o.mesh.values()][::-1])


def _axes(
    axes: Mapping[str, Any] | Sequence[str] | None, found: SetFile, program: SweepFacts, meshes: bool
) -> tuple[tuple[str, ...], dict[str, Limit]]:
    """The axes of meshes and the limits that hold for all sets."""
    own = None if program.mesh is None else Mesh(program.mesh)
    limits = {n: parse_limit(v, f"axes[{n!r}]") for n, v in axes.items()} if isinstance(axes, Mapping) else {}
    named = [n for n, _ in own.axes] if own is not None else list(axes or found.axes or _axes_of_sets(found))
    names = tuple(dict.fromkeys([*named, *(axes or ())]))
    if not names:
        raise InputError(
            "the program has no mesh, and no mesh axis is named",
            fix="give --mesh data=1,model=1 or a table [axes] in the sets' file (mesh= or axes= in Python)",
        )
    if own is not None and (new := next((a for a in limits if a not in own.axis_names), None)) is not None:
        fix = f"its mesh has {', '.join(own.axis_names)}; mesh={{{new!r}: 1}} adds an axis"
        raise InputError(f"axes names the axis {new!r}, which the program's mesh lacks", fix=fix)
    unknown = next((a for a in found.axes if a not in names), None)
    if unknown is not None:
        fix = f"its mesh has {', '.join(names)}; --mesh {unknown}=1 adds an axis"
        raise InputError(f"the sets name the axis {unknown!r}, which the program's mesh lacks", fix=fix)
    if meshes and program.manual:
        raise UnsupportedError(
            f"the program has manual computations (shard_map), whose shapes fit only its mesh {own}",
            where=program.manual,
            fix="sweep only annotations (--over annotations.toml), or export the program once per mesh",
        )
    return names, limits


def _axes_of_sets(found: SetFile) -> tuple[str, ...]:
    """The axes that the sets' annotations speak of; where annotations are to be found, two at least."""
    specs = [spec for s in found.sets for spec in s.specs.values() if isinstance(spec, str)]
    return axes_to_try(specs) if any(s.auto for s in found.sets) else named_axes(specs)


def _meshes(
    program: SweepFacts, devices: int, names: Sequence[str], limits: Mapping[str, Limit], free: bool
) -> tuple[Sizes, ...]:
    if free:
        return tuple(factorisations(devices, names, limits))
    own = None if program.mesh is None else Mesh(program.mesh)
    if own is None or own.size != devices:
        what = "the program has no mesh" if own is None else f"the program's mesh {own} has {own.size} devices"
        raise InputError(
            f"{what}, but {devices} are requested", fix="try other meshes (--over mesh), or give one (--mesh)"
        )
    return (tuple(size for _, size in own.axes),)


def _need_candidates(groups: Sequence[Group], names: Sequence[str]) -> None:
    empty = [g for g in groups if not g.search.meshes]
    if len(empty) == len(groups):
        counts = ", ".join(map(str, sorted({g.devices for g in empty})))
        raise InputError(
            f"within the limits, no mesh over {', '.join(names)} has {counts} devices",
            fix="give wider limits in [axes], or another number of devices",
        )
