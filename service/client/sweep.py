"""`shardc.sweep` at a compile service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.analysis.sweep.meshes import Limit, device_counts, parse_limit
from shardc.analysis.sweep.sets import AnnotationSet, SetFile, sets_of
from shardc.costs.machines.machine import GivenMapping, mapping_text
from shardc.service.client.program import RemoteProgram
from shardc.service.client.terms import machine_terms, spec_text
from shardc.service.jobs import Job
from shardc.service.orders import SweepOrder, SweepSet

if TYPE_CHECKING:
    from shardc.analysis.sweep.result import SweepResult

__all__ = ["sweep"]


def sweep(
    programs: Sequence[RemoteProgram],
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
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """As `shardc.analysis.sweep.run.sweep`, of one program or of one per number of devices; ``jobs`` is the service's
    own affair."""
    from shardc.analysis.sweep.result import SweepResult

    first = programs[0]
    if mesh is not None:
        first = first.annotate(mesh=mesh)
    found = sets if isinstance(sets, SetFile) else sets_of(sets)
    digests = {p.digest: p.data for p in programs}
    order = first.order(
        SweepOrder,
        devices=device_counts(devices),
        programs=tuple(p.digest for p in programs) if len(programs) > 1 else (),
        meshes=meshes,
        axes=_axes(axes),
        sets=tuple(_set(s) for s in found.sets),
        set_axes=found.axes,
        mapping=mapping_text(mapping),
        limit=limit,
        refine=refine,
        uneven=uneven,
        ignore_memory=ignore_memory,
        **machine_terms(machine),
    )
    result = first.carry_out(order, digests, _progress_callback(progress)).value(SweepResult, "sweep.json")
    return replace(result, machine=str(machine))


def _axes(axes: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(axes, Mapping):
        return dict.fromkeys(axes or (), "1..")
    return {name: _sizes(parse_limit(value, f"axes[{name!r}]")) for name, value in axes.items()}


def _sizes(limit: Limit) -> str | tuple[int, ...]:
    """A limit as `parse_limit` reads it."""
    return limit.only or f"{limit.least}..{limit.most or ''}"


def _set(given: AnnotationSet) -> SweepSet:
    specs = {name: spec_text(spec) for name, spec in given.specs.items()}
    return SweepSet(name=given.name, annotations=specs, axes={n: _sizes(v) for n, v in given.limits.items()})


def _progress_callback(progress: Callable[[int, int], None] | None) -> Callable[[Job], None] | None:
    """What a job says of its candidates."""
    if progress is None:
        return None

    def hear(job: Job) -> None:
        done, most = job.progress.get("done"), job.progress.get("of")
        if isinstance(done, int) and isinstance(most, int):
            progress(done, most)

    return hear
