"""What `shardc.auto` found: annotations, what a step takes with them, and what was tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shardc.analysis.auto.written_plan import WrittenPlan, is_written_plan
from shardc.analysis.simulate.simulation import Simulation
from shardc.hlo.errors import InputError
from shardc.hlo.transforms.frontend_of import frontend_of
from shardc.hlo.units import bytes_text, count_text, seconds_text, sizes_text
from shardc.launcher.drawings.draw_plan import write_plan_svg
from shardc.launcher.run.output_files import write_text
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.program import PartitionedProgram, SourceProgram

__all__ = ["MESH_COLUMNS", "NO_ANNOTATIONS", "SPEC_COLUMNS", "FoundPlan", "TriedMesh", "check_plan_file"]

SPEC_COLUMNS = ("what", "spec", "why")
#: What a plan without annotations says in their place.
NO_ANNOTATIONS = (
    "No annotations make the step more than 1 % faster, or save a fifth of the memory at the same speed.",
    "The search tried only even splits of arguments and results.",
)
MESH_COLUMNS = ("mesh", "modelled", "bound", "step", "peak memory", "annotations")


def check_plan_file(path: str | Path) -> None:
    """Raise `InputError` for a file that no plan is written into."""
    if Path(path).suffix not in (".py", ".toml"):
        raise InputError(
            "a plan cannot be written to this kind of file",
            where=str(path),
            fix="name it NAME.py (Python code) or NAME.toml (annotations)",
        )


@dataclass(frozen=True, slots=True)
class TriedMesh:
    """A mesh that was tried: ``modelled`` seconds of its best choice of layouts, and ``bound``, a lower bound of all
    choices.

    ``step_seconds`` and ``peak_bytes`` are simulated, with so many ``annotations``; None if the models excluded the
    mesh. ``reason``: why there is no plan over it.
    """

    mesh: Mapping[str, int]
    modelled: float = 0.0
    bound: float = 0.0
    step_seconds: float | None = None
    peak_bytes: int | None = None
    annotations: int | None = None
    reason: str = ""

    def row(self) -> tuple[str, ...]:
        text = sizes_text(self.mesh)
        if self.reason:
            return (text, "", "", "", "", self.reason)
        step = "" if self.step_seconds is None else seconds_text(self.step_seconds)
        peak = "" if self.peak_bytes is None else bytes_text(self.peak_bytes)
        count = "" if self.annotations is None else str(self.annotations)
        return (text, seconds_text(self.modelled), seconds_text(self.bound), step, peak, count)


@dataclass(frozen=True, repr=False)
class FoundPlan:
    """What `auto` found: annotations, the step with them, and the meshes that were compared.

    ``program`` has the ``written`` annotations, ``partitioned`` is made of it, ``simulation`` is its step. ``given`` is
    a step with the program's own annotations, on the same mesh. ``meshes`` are those that were compared, the best
    first. ``memory`` is the number of bytes of a device. ``tell`` computes the `plan`.

    >>> small = shardc.trace(lambda x, w: (x @ w).sum(), np.ones((64, 16)), np.ones((16, 8)), mesh=mesh)
    >>> plan = shardc.auto(small, machine="h100-dgx")
    >>> plan.mesh
    {'data': 2, 'model': 2}
    """

    program: SourceProgram
    partitioned: PartitionedProgram
    simulation: Simulation
    written: WrittenPlan
    given: Simulation
    meshes: Sequence[TriedMesh]
    memory: float
    tell: Callable[[], PlanReasons]

    @cached_property
    def plan(self) -> PlanReasons:
        """The layouts that the annotations were written for: of each decided value what propagation gives without them,
        what was chosen, and what the next best would cost."""
        return self.tell()

    def draw_plan(self, path: str | Path) -> None:
        """Write a picture (SVG) of the `plan`, see `Partitioned.draw_plan`.

        >>> plan.draw_plan("found.svg")
        """
        write_plan_svg(self.simulation.program, self.plan, path)

    @property
    def mesh(self) -> Mapping[str, int]:
        """Sizes of the mesh by axis."""
        return self.written.mesh.shape

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations by name, as `Program.annotate` takes them."""
        return self.written.annotations()

    def as_jax(self) -> str:
        """The annotations as Python code for the JAX program.

        >>> "SPECS = {" in plan.as_jax()
        True
        """
        return self.written.as_jax()

    def as_code(self) -> str:
        """The annotations as people paste them: `as_jax`, or for a PyTorch program the arguments of `annotate`.

        >>> plan.as_code() == plan.as_jax()
        True
        """
        made_by_jax = frontend_of(self.program.module) != "torch"
        return self.written.as_jax() if made_by_jax else self.written.as_annotations()

    def as_toml(self) -> str:
        """The annotations as a file for ``--annotations``.

        >>> plan.as_toml().splitlines()[0]
        '[mesh]'
        """
        return self.written.as_toml()

    def save(self, path: str | Path) -> None:
        """Write `as_code` to a ``.py`` file, or `as_toml` to a ``.toml`` file.

        An earlier plan is replaced. Raises `InputError` for other suffixes, for other Python files that are there,
        and for files that cannot be written.

        >>> plan.save("plan.toml")
        """
        check_plan_file(path)
        text = self.as_code() if Path(path).suffix == ".py" else self.as_toml()
        write_text(Path(path), text, replaces=is_written_plan)

    @property
    def summary(self) -> str:
        """A step with the plan, beside the program as it was given."""
        found, given = self.simulation, self.given
        mesh = sizes_text(self.mesh)
        return (
            f"{found.program} on {count_text(found.devices, 'device')} of {found.machine} ({mesh}): "
            f"step {seconds_text(found.step_seconds)}, {bytes_text(found.peak_bytes)} of {bytes_text(self.memory)} "
            f"per device; as given {seconds_text(given.step_seconds)}, {bytes_text(given.peak_bytes)}"
        )

    def as_text(self) -> str:
        """What ``print`` and the command line show: step time and memory, then every annotation with its reason.

        >>> "h100-dgx" in plan.as_text()
        True
        """
        if not self.written.specs:
            return "\n".join([self.summary, "", *NO_ANNOTATIONS, ""])
        rows = [SPEC_COLUMNS, *self.written.as_table()]
        widths = [max(len(r[k]) for r in rows) for k in range(len(SPEC_COLUMNS))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([self.summary, "", *lines, ""])

    def __repr__(self) -> str:
        return self.as_text()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON.

        >>> plan.to_dict()["devices"]
        4
        """
        found = self.simulation
        return {
            "program": found.program,
            "machine": found.machine,
            "devices": found.devices,
            "mesh": dict(self.mesh),
            "memory_bytes": self.memory,
            "step_seconds": found.step_seconds,
            "peak_bytes": found.peak_bytes,
            "wire_bytes": self.partitioned.facts["wire_bytes"],
            "given": {"step_seconds": self.given.step_seconds, "peak_bytes": self.given.peak_bytes},
            "specs": [
                {
                    "kind": s.kind,
                    "names": list(s.names),
                    "spec": s.partition_spec,
                    "annotation": self.annotations[s.names[0]],
                    "place": s.place,
                    "what": s.what,
                    "reason": s.reason,
                }
                for s in self.written.specs
            ],
            "meshes": [asdict(m) for m in self.meshes],
            "jax": self.as_jax(),
            "toml": self.as_toml(),
        }
