"""One candidate of a sweep: annotate, propagate, partition, simulate; what it takes, or why it cannot run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shardc.analysis.auto.find_plan import PlanSearch
from shardc.analysis.simulate.simulate_program import simulate_partitioned
from shardc.costs.machines.machine import load_machine, placed_machine
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.units import bytes_text, sizes_text
from shardc.partitioner.program import SourceProgram

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation

__all__ = ["Outcome", "SweepCandidate", "SweepSettings", "assess"]


@dataclass(frozen=True)
class SweepCandidate:
    """A mesh, by axis, and a set of annotations, by its ``name``; ``source`` counts the sweep's programs. With ``auto``
    more annotations are found for the mesh."""

    devices: int
    mesh: Mapping[str, int]
    name: str
    specs: Mapping[str, Any]
    source: int = 0
    auto: bool = False


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """How candidates are judged: on which ``machine``, with mesh axes placed as ``mapping`` says. ``uneven`` says
    whether parts may be uneven, ``ignore_memory`` whether a program may be larger than memory. ``for_machine`` says
    whether it is partitioned for the machine, which takes longer, or for the fewest bytes."""

    machine: str
    mapping: str = ""
    uneven: bool = False
    ignore_memory: bool = False
    for_machine: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: the figures of `shardc.analysis.simulate.simulation.Simulation`, or a ``reason``.

    ``wire_bytes`` are those that one device sends in a step; ``partitioned_for`` says what the partitioner minimised:
    ``bytes``, or modelled time on the ``machine``. ``annotations`` are those that were found.
    """

    devices: int
    mesh: Mapping[str, int]
    set: str
    reason: str = ""
    step_seconds: float = math.inf
    compute_seconds: float = 0.0
    exposed_seconds: float = 0.0
    overlapped_seconds: float = 0.0
    idle_seconds: float = 0.0
    mfu: float = 0.0
    hfu: float = 0.0
    peak_bytes: int = 0
    capacity_bytes: int = 0
    flops: int = 0
    wire_bytes: float = 0.0
    link_bytes: Mapping[str, float] = field(default_factory=dict)
    mapping: Mapping[str, str] = field(default_factory=dict)
    partitioned_for: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return not self.reason

    @property
    def exposed_share(self) -> float:
        """Of the step, what compute waited for collectives."""
        return self.exposed_seconds / self.step_seconds if self.runs and self.step_seconds else 0.0

    @property
    def mesh_text(self) -> str:
        return sizes_text(self.mesh)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; a candidate that cannot run has no times."""
        out = asdict(self)
        if self.runs:
            return {**out, "exposed_share": self.exposed_share}
        known = ("devices", "mesh", "set", "reason", "peak_bytes", "capacity_bytes", "partitioned_for")
        return {name: out[name] for name in known}


def assess(program: SourceProgram, candidate: SweepCandidate, settings: SweepSettings) -> Outcome:
    """The candidate's outcome; errors of ours become its reason. Unless it is for the machine, layouts are as its
    annotations propagate."""
    name = candidate.name
    outcome = Outcome(candidate.devices, dict(candidate.mesh), name)
    try:
        annotated = program.annotate(candidate.specs, mesh=Mesh(dict(candidate.mesh)))
        if candidate.auto:
            return _assess_found(annotated, outcome, settings)
        problem = _idle_axis(annotated.module) or ("" if settings.uneven else _uneven(annotated.module))
        if problem:
            return replace(outcome, reason=problem)
        if settings.for_machine:  # as `shardc simulate` does, plan included
            partitioned = annotated.partition(machine=placed_machine(settings.machine, settings.mapping))
        else:
            partitioned = annotated.partition(plan="propagated")
        mapping = settings.mapping or None
        found = simulate_partitioned(partitioned, settings.machine, mapping=mapping, ignore_memory=True)
    except ShardcError as e:
        where = "" if e.where is None else f" ({e.where})"
        near = f"; {e.fix}" if (e.fix or "").startswith("did you mean") else ""
        return replace(outcome, reason=f"{e.what}{where}{near}")
    return _with_figures(outcome, found, settings)


def _assess_found(program: SourceProgram, outcome: Outcome, settings: SweepSettings) -> Outcome:
    """The outcome with the annotations that are found for the program's mesh."""
    room = math.inf if settings.ignore_memory else float(load_machine(settings.machine).device.memory_bytes)
    search = PlanSearch.begin(program, settings.machine, room)
    made = search.shorten(search.found() or search.as_given())
    found = simulate_partitioned(
        made.partitioned, settings.machine, mapping=settings.mapping or None, ignore_memory=True
    )
    outcome = replace(outcome, annotations=dict(made.written.annotations()))
    return _with_figures(outcome, found, replace(settings, for_machine=True))


def _with_figures(outcome: Outcome, found: Simulation, settings: SweepSettings) -> Outcome:
    reason = ""
    if not found.fits and not settings.ignore_memory:
        reason = f"needs {bytes_text(found.peak_bytes)} of {bytes_text(found.capacity_bytes)} memory"
    return replace(
        outcome,
        reason=reason,
        step_seconds=found.step_seconds,
        compute_seconds=found.compute_seconds,
        exposed_seconds=found.exposed_seconds,
        overlapped_seconds=found.overlapped_seconds,
        idle_seconds=found.idle_seconds,
        mfu=found.mfu,
        hfu=found.hfu,
        peak_bytes=found.peak_bytes,
        capacity_bytes=found.capacity_bytes,
        flops=found.flops,
        wire_bytes=float(sum(found.link_bytes.values())),
        link_bytes=dict(found.link_bytes),
        mapping=dict(found.mapping),
        partitioned_for="machine" if settings.for_machine else "bytes",
    )


def _idle_axis(module: Module) -> str:
    """Why the mesh is too large: an axis that no annotation mentions, over which all devices would do the same."""
    used = {a.name for i in module.instructions() for s in _shardings(i.sharding) for d in s.dims for a in d.axes}
    used |= {a for i in module.instructions() for s in _shardings(i.sharding) for a in s.manual}
    idle = [n for n, size in (module.mesh.axes if module.mesh else ()) if size > 1 and n not in used]
    return f"nothing is split over axis {idle[0]}" if idle else ""


def _uneven(module: Module) -> str:
    """The first argument with a dimension that the devices along its axes do not divide."""
    for name, parameter in zip(module.argument_names, module.parameters, strict=True):
        for shape, sharding in zip(parameter.shape.leaves(), _shardings(parameter.sharding), strict=False):
            for dimension, (size, parts) in enumerate(zip(shape.dims, sharding.num_shards(), strict=False)):
                if size % parts:
                    axes = "+".join(a.name for a in sharding.dims[dimension].axes)
                    return f"{name} dimension {dimension} ({size}) does not divide by {axes} ({parts})"
    return ""


def _shardings(value: object) -> list[Sharding]:
    items = value if isinstance(value, tuple) else (value,)
    return [s for s in items if isinstance(s, Sharding)]
