"""The stages of a program: `Program` (annotated) -> `Propagated` -> `Partitioned` -> `Compiled`.

Each stage is immutable and can be printed; each step names what went wrong in the terms of its input. The stages are
the records of `shardc.partitioner.program` with what the rooms above the partitioner make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.analysis.report.stage_facts import Reported
from shardc.analysis.simulate.judge_of import judge_of
from shardc.compiler.outline import outline
from shardc.hlo.config import Config
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.progress import stage
from shardc.hlo.transforms.known_custom_calls import require_new
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.driver.compiled import Compiled, compile_partitioned, compile_program, job_config
from shardc.launcher.driver.executables import RemoteCompiler
from shardc.partitioner.options import DEFAULT_PLAN, Choice, Plan
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Difference, Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.partitioner.free_interface import FreeInterface
    from shardc.partitioner.plan.judge import Judge

__all__ = ["Compiled", "Partitioned", "Program", "Propagated", "as_stage", "remote_compiler"]


@dataclass(frozen=True)
class Program(SourceProgram):
    """A global program with some annotations.

    ``jax`` knows the pytrees of a program that came from a JAX or NumPy function; ``original`` are the bytes of the
    file it was read from. ``content`` is a digest of all that the module was made from, empty where nobody knows; the
    cache goes by it. Made by `shardc.load`, `shardc.from_jax` and `shardc.trace`.
    """

    config: Config = field(default_factory=job_config)

    def __repr__(self) -> str:
        return outline("Program", self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import program_html

        return program_html(self.module)

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> Program:
        """Add shardings to values by name or glob, and give or resize the mesh.

        Example: ``program.annotate({"w1": P(None, "model")}, mesh=Mesh({"data": 2, "model": 4}))``. Raises
        `AnnotationError` for a name, axis or dimension that is not there.
        """
        return super().annotate(annotations, None if mesh is None else as_mesh(mesh))

    def with_custom_calls(self, custom_calls: Mapping[str, CustomCall]) -> Program:
        """Say what custom-call targets mean that shardc does not know.

        Calls with an ``expand`` become HLO instructions at once, so that they are sharded and compiled like any
        others; the rest is kept for evaluation and compiled code. Known targets can be replaced by an ``expand``.
        Example: ``program.with_custom_calls({"scale2": CustomCall(expand=lambda b, call, x: b.add("add", x, x))})``.
        """
        from shardc.compiler.lower.expand.expand_custom_calls import ExpandCustomCalls
        from shardc.sharding.rules.custom_call import with_sharding_rules

        require_new(custom_calls)
        expanded = {target: c for target, c in custom_calls.items() if c.expand is not None}
        module = ExpandCustomCalls(custom_calls=expanded).run(self.module) if expanded else self.module
        rules = {target: c.sharding_rule for target, c in custom_calls.items() if c.sharding_rule}
        module = with_sharding_rules(module, rules) if rules else module
        config = replace(self.config, custom_calls={**self.config.custom_calls, **custom_calls})
        return replace(self, module=module, config=config, content="")

    def propagate(self, *, conservative: bool = False) -> Propagated:
        """Give every value a sharding, see `SourceProgram.propagate`."""
        return Propagated(**_fields(super().propagate(conservative=conservative)))

    def partition(
        self,
        *,
        machine: str | Path | None = None,
        windowed_einsum: Choice = "auto",
        pipelined_loops: Choice = "auto",
        decomposed_rings: bool = False,
        plan: Plan = DEFAULT_PLAN,
        memory: float | None = None,
        judge: Judge | None = None,
    ) -> Partitioned:
        """`propagate`, then `Propagated.partition`."""
        return self.propagate().partition(
            machine=machine,
            windowed_einsum=windowed_einsum,
            pipelined_loops=pipelined_loops,
            decomposed_rings=decomposed_rings,
            plan=plan,
            memory=memory,
            judge=judge,
        )

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mesh: Any = None,
        mapping: str | Mapping[str, str] | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """What a step takes on a described machine, see `Partitioned.simulate`: all the stages at once.

        A program that XLA has partitioned and scheduled (``compiled.as_text()``, ``is_scheduled=true``) is simulated as
        it is: its order, its fusions, its asynchronous pairs. ``mesh`` then names its devices, for ``mapping``; of
        other programs it is the mesh, or resizes it.
        """
        from shardc.analysis.simulate.simulate_program import simulate_program

        over = None if mesh is None else as_mesh(mesh)
        return simulate_program(self, machine, mesh=over, mapping=mapping, ignore_memory=ignore_memory)

    def compile(self, target: str = "cpu", *, tune: float | None = None) -> Compiled:
        """All the stages at once; what the cache knows is not partitioned again. ``target`` and ``tune`` as
        `Partitioned.compile`."""
        return compile_program(self, target, tune=tune, remote=remote_compiler)


@dataclass(frozen=True)
class Propagated(PropagatedProgram):
    """Every value has a sharding; ``provenance`` knows why."""

    program: Program

    def __repr__(self) -> str:
        return outline("Propagated", self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import propagated_html

        return propagated_html(self.module)

    def partition(
        self,
        *,
        machine: str | Path | None = None,
        windowed_einsum: Choice = "auto",
        pipelined_loops: Choice = "auto",
        decomposed_rings: bool = False,
        plan: Plan = DEFAULT_PLAN,
        memory: float | None = None,
        judge: Judge | None = None,
        interface: FreeInterface | None = None,
    ) -> Partitioned:
        """Rewrite into the program that every device runs, see `PropagatedProgram.partition`.

        Plans for a machine are judged by simulation, others by what they send and by the buffers of the compiler.
        """
        judge = judge or judge_of(machine, self.program.config)
        found = super().partition(
            machine=machine,
            windowed_einsum=windowed_einsum,
            pipelined_loops=pipelined_loops,
            decomposed_rings=decomposed_rings,
            plan=plan,
            memory=memory,
            judge=judge,
            interface=interface,
        )
        return Partitioned(**_fields(found))


@dataclass(frozen=True)
class Partitioned(PartitionedProgram, Reported):
    """The per-device program."""

    propagated: Propagated

    def __repr__(self) -> str:
        return outline("Partitioned", self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import partitioned_html

        return partitioned_html(self.report())

    @property
    def program(self) -> Program:
        return self.propagated.program

    def explanation(
        self,
        machine: str | Path | None = None,
        *,
        remedies: int = 0,
        tries: int = 12,
        seconds: float = 30.0,
        thresholds: Mapping[str, float] | None = None,
    ) -> Explanation:
        """Why each collective is there, the most costly first, and warnings; plain data (``to_dict``) and ``as_text``.

        With a ``machine`` costs are modelled seconds, else bytes. ``remedies`` are looked for against so many of the
        most costly collectives and against warnings: annotations that make the whole program cheaper, found by
        partitioning it with each of at most ``tries`` per collective, for some ``seconds`` in all. ``thresholds`` are
        shares from which on something is worth a warning, by name:
        `shardc.analysis.explain.diagnostics.survey.Thresholds`.
        Example: ``print(partitioned.explanation(remedies=3).as_text())``.
        """
        from shardc.analysis.explain.diagnostics.survey import thresholds_of
        from shardc.analysis.explain.explain import explain
        from shardc.analysis.explain.remedies import SearchLimits

        limits = SearchLimits(remedies, tries, seconds)
        return explain(self, None if machine is None else str(machine), limits, thresholds_of(thresholds or {}))

    def difference(self, other: Partitioned, machine: str | Path | None = None) -> Difference:
        """What changes from this one to ``other``: the same program with other annotations. With a ``machine`` totals
        have modelled seconds."""
        from shardc.analysis.explain.difference import difference

        return difference(self, other, None if machine is None else str(machine))

    def write_report(
        self,
        path: str | Path,
        *,
        machine: str | Path | None = None,
        mapping: str | Mapping[str, str] | None = None,
        remedies: int = 0,
        seconds: float = 30.0,
    ) -> None:
        """Write one HTML page that works from disk: structure, collectives and why they are there, tensors, memory, and
        with a ``machine`` (default: the one that was partitioned for) a simulated step's timeline and traffic.

        ``mapping`` as `simulate` has it, ``remedies`` and ``seconds`` as `explanation`; without remedies equal programs
        make equal bytes. Example: ``partitioned.write_report("report.html", machine="h100-dgx")``. Raises
        `InputError` for files that cannot be written, machines and mappings as `simulate`.
        """
        from shardc.analysis.report.write import write_report

        write_report(self, path, machine=machine, mapping=mapping, remedies=remedies, seconds=seconds)

    def draw_plan(self, path: str | Path) -> None:
        """Write a picture (SVG) of the plan of layouts: what was propagated, chosen, what else would cost, and memory
        over the program. Raises `InputError` where nothing was planned, and for files that cannot be written.

        Example: ``program.propagate().partition(plan="global").draw_plan("plan.svg")``.
        """
        from shardc.launcher.drawings.draw_plan import write_plan_svg

        write_plan_svg(self.module.name, self.plan, path)

    def compile(self, target: str = "cpu", *, profile: bool = False, tune: float | None = None) -> Compiled:
        """Native code, loaded on this job's devices: virtual ones, or MPI ranks when started by a launcher.

        ``target`` is ``cpu``, ``cuda`` (the GPU of this machine), ``cuda:sm_90`` or another kind of GPU (to save the
        program for where there is one), or ``cuda-emulated``: GPU code whose threads run on this processor, slowly.
        With ``profile`` steps record what each kernel takes, at some 50 ns each; `Compiled.profile` does so by itself.
        ``tune`` are seconds in which other tile sizes, chunks and fusions are tried on this machine (default: the
        environment's ``SHARDC_TUNE``, else none); what was found is kept in the cache. Results differ by no more than
        the rounding of reordered sums. Raises `UnsupportedError` for unknown targets, and for tuning on GPUs;
        `EnvironmentProblem`, with the reason, where ``cuda`` is not there.
        """
        return compile_partitioned(self, target, profile=profile, tune=tune, remote=remote_compiler)

    @stage("compile")
    def compile_ahead(
        self, folder: str | Path, *, name: str = "", cpu: str = "", system: str = ""
    ) -> tuple[AheadProgram, list[Path]]:
        """Write object, C header and source, manifest, example and Makefile: what runs without Python.

        ``cpu`` is ``native`` (the default), or another such as ``x86-64-v3`` or ``aarch64``, ``system`` ``linux`` or
        ``macos``, ``name`` what C calls the program. Returns it and the files. Raises `InputError` for unknown names
        and a folder that cannot be written. Example: ``partitioned.compile_ahead("step", cpu="x86-64-v3")``.
        """
        from shardc.analysis.ahead import compile_ahead, write_ahead

        program = compile_ahead(self, name=name, cpu=cpu, system=system)
        return program, write_ahead(program, folder)

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mapping: str | Mapping[str, str] | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """What a step takes on a described machine: time and what it goes to, links, memory, critical path.

        ``machine`` is a name with or without a number of devices (``"h100-dgx:64"``, ``"tpu-v5p:4x4x4"``), or the path
        of a description; default: the one that was partitioned for. ``mapping`` says where mesh axes lie
        (``"data=infiniband,model=nvlink"``; default: the outermost axis on the outermost links). Needs no hardware and
        no tensors, and costs the same for any number of devices. Raises `InputError` for unknown machines, meshes that
        do not fit, and programs that are larger than memory (not with ``ignore_memory``: see `Simulation.fits`).

        Example: ``print(partitioned.simulate("h100-dgx"))``.
        """
        from shardc.analysis.simulate.simulate_program import simulate_partitioned

        return simulate_partitioned(self, machine, mapping=mapping, ignore_memory=ignore_memory)


def as_stage(program: SourceProgram) -> Program:
    """``program`` with what the rooms above the partitioner make of it."""
    return Program(**_fields(program))


def remote_compiler(
    config: Config, program: Callable[[], SourceProgram], target: str, **stages: Any
) -> RemoteCompiler | None:
    """The compile service that ``config`` names, for this program; None without one."""
    if not config.server:
        return None
    from shardc.service.client.compile_remotely import RemoteCompilation

    return RemoteCompilation.of(config, program, target, **stages)


def _fields(record: SourceProgram | PropagatedProgram | PartitionedProgram) -> dict[str, Any]:
    """The fields of a record of the partitioner, for the stage that has it."""
    return {f.name: getattr(record, f.name) for f in fields(record)}
