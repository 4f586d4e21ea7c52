"""`shardc.auto`: finds the annotations with which a program's step is shortest on a machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from shardc.analysis.auto.find_plan import AnnotatedProgram, PlanSearch
from shardc.analysis.auto.found_plan import FoundPlan, TriedMesh
from shardc.analysis.simulate.run import largest_values
from shardc.analysis.sweep.meshes import MeshSearch, Sizes, axes_to_try, factorisations
from shardc.analysis.sweep.workers import over_a_mesh
from shardc.costs.machines.machine import load_machine
from shardc.frontends.load import load_program, read_file
from shardc.hlo.errors import InputError, ShardcError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.progress import detail
from shardc.hlo.units import bytes_text, require_bytes, seconds_text
from shardc.launcher.arrays.meshes import as_mesh
from shardc.partitioner.program import SourceProgram, not_a_program
from shardc.sharding.notations.resize_mesh import manual_border

__all__ = ["auto"]

#: Plans over so many meshes are carried out at most: those that models like best.
_CARRIED_OUT = 4
#: So many meshes are weighed at most.
_MESHES = 16


def auto(
    program: Any,
    *,
    machine: str | Path,
    devices: int | None = None,
    mesh: Any = None,
    memory: float | None = None,
    keep: str | Iterable[str] | None = None,
) -> FoundPlan:
    """Find annotations for ``program`` (a `Program`, or the path of a file) that minimise its step time on a machine.

    ``machine`` is a name such as ``"h100-dgx"``, or the path of a description. ``mesh`` is the mesh; default: the
    program's own. With ``devices`` instead, models compare all meshes of that many devices over the program's axes
    (``data`` and ``model`` where it has none). The best are partitioned and simulated. ``memory`` is the number of
    bytes per device that a step may take; default: the machine's.

    The program's own annotations stay. With ``keep``, only those of arguments and results with one of these names or
    globs stay. Returns a `FoundPlan`, whose step is that of the annotated program, partitioned and simulated.

    Raises `InputError` for unknown machines, meshes and names, and where no plan fits the memory.

    >>> plan = shardc.auto(program, machine="h100-dgx", keep=("x", "target"))
    >>> plan.simulation.step_seconds <= plan.given.step_seconds
    True
    """
    name, described = str(machine), load_machine(str(machine))
    require_bytes(memory, "memory")
    room = described.device.memory_bytes if memory is None else memory
    names = None if keep is None else (keep,) if isinstance(keep, str) else tuple(keep)
    source = _source(program)
    axes, meshes = _meshes(source, devices, None if mesh is None else as_mesh(mesh))
    return _MeshChoice(source, name, float(room), names, axes).run(meshes)


@dataclass(slots=True)
class _MeshChoice:
    """Weighs meshes over ``axes`` by models, and carries out plans over the best of them."""

    program: SourceProgram
    machine: str
    memory: float
    keep: tuple[str, ...] | None
    axes: Sequence[str]
    searches: list[PlanSearch] = field(default_factory=list)
    tried: dict[Sizes, TriedMesh] = field(default_factory=dict)
    problem: ShardcError | None = None

    def run(self, meshes: MeshSearch) -> FoundPlan:
        while new := self.next(meshes):
            for sizes in new:
                self.weigh(sizes)
        if not self.searches:
            assert self.problem is not None
            raise self.problem
        search, best = self.best()
        given = search.as_users_have_it(search.as_given())
        best = best and search.as_users_have_it(search.shorten(best))
        if best is None or (given.is_better(best, self.memory) and not best.is_leaner(given)):
            best = given
        self.tell(best)
        if not best.fits(self.memory):
            raise self.too_large(best)
        written, tried = best.written, self.ranked()
        return FoundPlan(
            best.program,
            best.partitioned,
            best.simulation,
            written,
            given.simulation,
            tried,
            self.memory,
            partial(search.reasons, best, given),
        )

    def best(self) -> tuple[PlanSearch, AnnotatedProgram | None]:
        """The search whose plan is best, and its program.

        A mesh is left out where no plan over it can win: where even its bound is above the best step by more than
        models were above any step.
        """
        first, best, above = self.searches[0], None, 1.0
        for search in self.searches:
            most = best.simulation.step_seconds if best is not None and best.fits(self.memory) else math.inf
            made = search.found() if search.best.bound <= above * most else None
            if made is None:
                continue
            self.tell(made)
            above = max(above, search.best.cost / made.simulation.step_seconds)
            if best is None or made.is_better(best, self.memory):
                first, best = search, made
        return first, best

    def tell(self, made: AnnotatedProgram) -> None:
        """What a plan that was carried out came to."""
        step, peak, count = made.simulation.step_seconds, made.simulation.peak_bytes, len(made.written.specs)
        sizes = _sizes(made)
        self.tried[sizes] = replace(self.tried[sizes], step_seconds=step, peak_bytes=peak, annotations=count)

    def next(self, meshes: MeshSearch) -> list[Sizes]:
        if not self.tried:
            return meshes.first()
        return meshes.following({m: math.inf if t.reason else t.modelled for m, t in self.tried.items()})

    def weigh(self, sizes: Sizes) -> None:
        """What models say of a mesh; its search is kept where few are better."""
        shape = dict(zip(self.axes, sizes, strict=True))
        try:
            program = (
                self.program
                if Mesh(shape) == self.program.mesh
                else SourceProgram.annotate(self.program, {}, Mesh(shape))
            )
            search = PlanSearch.begin(program, self.machine, self.memory, self.keep)
        except ShardcError as error:
            self.problem = self.problem or error
            self.tried[sizes] = TriedMesh(shape, reason=error.what)
            return
        answer = search.best
        self.tried[sizes] = TriedMesh(shape, answer.cost, answer.bound)
        detail("%s: %s modelled", shape, seconds_text(answer.cost))
        self.searches = sorted([*self.searches, search], key=_promise)[:_CARRIED_OUT]

    def ranked(self) -> tuple[TriedMesh, ...]:
        """The meshes, those first that were carried out, by step."""
        return tuple(
            sorted(self.tried.values(), key=lambda t: (t.step_seconds or math.inf, bool(t.reason), t.modelled))
        )

    def too_large(self, best: AnnotatedProgram) -> InputError:
        peak = best.simulation.peak_bytes
        return InputError(
            f"no plan was found within {bytes_text(self.memory)} per device: "
            f"the smallest one takes {bytes_text(peak)}, {bytes_text(peak - self.memory)} too much"
            f"{largest_values(best.simulation)}",
            where=str(best.program.mesh),
            fix="use more devices, keep fewer annotations, or recompute values for gradients (jax.checkpoint)",
        )


def _promise(search: PlanSearch) -> tuple[bool, float]:
    """By which searches are ranked: within the memory first, then by modelled cost."""
    return search.best.excess is not None, search.best.cost


def _sizes(made: AnnotatedProgram) -> Sizes:
    mesh = made.program.mesh
    assert mesh is not None
    return tuple(size for _, size in mesh.axes)


def _source(program: Any) -> SourceProgram:
    """The program, over the mesh that its shardings tell, if they do."""
    if isinstance(program, str | Path):
        program = load_program(read_file(program), str(program))
    if not isinstance(program, SourceProgram):
        raise not_a_program(program)
    return over_a_mesh(program, None)


def _meshes(program: SourceProgram, devices: int | None, mesh: Mesh | None) -> tuple[Sequence[str], MeshSearch]:
    """The axes, and their sizes to try."""
    if devices is not None and mesh is not None:
        raise InputError("devices= and mesh= exclude each other", fix="give one of them")
    if mesh is not None and program.mesh is not None:
        mesh = SourceProgram.annotate(program, {}, mesh).mesh
    if devices is None:
        own = mesh or program.mesh
        if own is None:
            fix = 'give devices=8 or mesh=Mesh({"data": 2, "model": 4}); --devices or --mesh on the command line'
            raise InputError("the program has no mesh, and the number of devices is missing", fix=fix)
        return own.axis_names, MeshSearch((tuple(n for _, n in own.axes),), 1)
    if type(devices) is not int or devices < 1:
        raise InputError(f"devices is {devices!r}, which is not a positive number", fix="give 1 or more devices")
    axes = axes_to_try(()) if program.mesh is None else program.mesh.axis_names
    manual = manual_border(program.module)
    if manual is not None:
        raise UnsupportedError(
            f"the program has manual computations (shard_map), whose shapes fit only its mesh {program.mesh}",
            where=manual.place,
            fix="omit the number of devices, or export the program for the wanted mesh",
        )
    found = factorisations(devices, axes, {})
    if program.mesh is None:  # which of two axes is a mesh's only one makes no difference
        found = [sizes for sizes in found if sizes[0] > 1 or devices == 1]
    return axes, MeshSearch(tuple(found), _MESHES)
