"""The stages of a program: `Program` (annotated) -> `Propagated` -> `Partitioned` -> `Compiled`.

Each stage is immutable and can be printed; each step names what went wrong in the terms of its input. The stages are
the records of `shardc.partitioner.program` and what the packages above the partitioner add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.analysis.report.stage_facts import Reported
from shardc.analysis.simulate.judge_of import judge_of
from shardc.compiler.outline import outline
from shardc.costs.machines.machine import GivenMapping
from shardc.hlo.config import Config
from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.custom_calls import CustomCall, as_custom_calls
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.progress import stage
from shardc.hlo.transforms.known_custom_calls import require_new
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.arrays.placement import with_own_mesh
from shardc.launcher.driver.compiled import Compiled, compile_partitioned, compile_program, job_config
from shardc.launcher.driver.executables import RemoteCompiler
from shardc.partitioner.options import DEFAULT_PLAN, Choice, Plan
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram
from shardc.sharding.notations.new_axes import warn_of_new_axes

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Difference, Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.partitioner.free_interface import FreeInterface
    from shardc.partitioner.plan.judge import Judge

__all__ = ["Compiled", "Partitioned", "Program", "Propagated", "as_stage", "remote_compiler"]


@dataclass(frozen=True)
class Program(SourceProgram):
    """A program for one large device, with some annotations: the result of `load`, `from_jax` and `trace`.

    A `Program` is immutable: every method returns a new stage. ``jax`` describes the nested arguments of a program that
    was made from a function. ``original`` are the bytes of the file it was read from. ``content`` is a digest for the
    cache, empty where the program has none.

    >>> program.mesh.shape, program.num_devices
    ({'data': 2, 'model': 2}, 4)
    """

    config: Config = field(default_factory=job_config)

    def __repr__(self) -> str:
        return outline("Program", self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import program_html

        return program_html(self.module)

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> Program:
        """Add shardings to values by name or glob, and set or resize the mesh.

        ``annotations`` maps names to `P`, a JAX ``PartitionSpec``, or text such as ``"None,model"``. Exact names come
        before globs. ``mesh`` is a `Mesh`, a JAX mesh, or a dict of sizes; axes of the same name are resized.

        Raises `AnnotationError` for a name, axis or dimension that does not exist; the message lists similar names.
        Warns about a new axis that nothing uses, if the program has a mesh.

        >>> wider = program.annotate({"x": P("data", "model")}, mesh={"data": 4, "model": 2})
        >>> wider.num_devices
        8
        """
        if isinstance(annotations, Mesh):
            fix = 'write program.annotate({"x": P("data")}, mesh=mesh)'
            raise AnnotationError("the annotations are a mesh", where="annotate", fix=fix)
        if isinstance(annotations, Mapping) and self.mesh is None:
            annotations, mesh = with_own_mesh(dict(annotations), mesh, "annotations")
        annotated = super().annotate(annotations, None if mesh is None else as_mesh(mesh))
        if mesh is not None:
            warn_of_new_axes(self.mesh, annotated.module)
        return annotated

    def with_custom_calls(self, custom_calls: Mapping[str, CustomCall]) -> Program:
        """Define custom-call targets that shardc does not know.

        Calls with an ``expand`` become HLO instructions at once, so that they are sharded and compiled like all others.
        The other definitions are kept for the evaluator and for compiled code. An ``expand`` may also replace a target
        that shardc knows.

        Raises `InputError` for what is no `CustomCall`, and for a target that is known already and has no ``expand``.

        >>> double = shardc.CustomCall(expand=lambda builder, call, x: builder.add("add", x, x))
        >>> shardc.load("step.mlir").with_custom_calls({"my_double": double}).num_devices
        4
        """
        from shardc.compiler.lower.expand.expand_custom_calls import ExpandCustomCalls
        from shardc.sharding.rules.custom_call import with_sharding_rules

        custom_calls = as_custom_calls(custom_calls)
        require_new(custom_calls)
        expanded = {target: c for target, c in custom_calls.items() if c.expand is not None}
        module = ExpandCustomCalls(custom_calls=expanded).run(self.module) if expanded else self.module
        rules = {target: c.sharding_rule for target, c in custom_calls.items() if c.sharding_rule}
        module = with_sharding_rules(module, rules) if rules else module
        config = replace(self.config, custom_calls={**self.config.custom_calls, **custom_calls})
        return replace(self, module=module, config=config, content="")

    def propagate(self, *, conservative: bool = False) -> Propagated:
        r"""Give every value a sharding: annotations are kept, and the operations determine the others.

        With ``conservative`` no axis is divided into sub-axes, and nothing spreads through dimensions whose elements
        move (slices, padding, concatenation, windows). The result has fewer reshards to understand, and less sharding.
        An already partitioned program stays unchanged, with a warning.

        >>> print("\n".join(program.propagate().explain("x")))
        x: [{data}, {}]
          x dimension 0: data by annotation
          x dimension 1: kept whole by annotation
        """
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
        """Make the per-device program: `propagate`, then `Propagated.partition`, which describes the options.

        >>> program.partition().num_devices
        4
        """
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
        mapping: GivenMapping | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """Simulate a step on a described machine: all the stages at once, see `Partitioned.simulate`.

        ``mesh`` is the mesh of the program, or resizes it. A program that XLA has partitioned and scheduled
        (``compiled.as_text()`` with ``is_scheduled=true``) is simulated with its order, fusions and asynchronous pairs.
        ``mesh`` then names its devices, for ``mapping``.

        >>> step = program.simulate("h100-dgx", mesh={"data": 4, "model": 2})
        >>> step.devices, step.fits
        (8, True)
        """
        from shardc.analysis.simulate.simulate_program import simulate_program

        over = None if mesh is None else as_mesh(mesh)
        return simulate_program(self, machine, mesh=over, mapping=mapping, ignore_memory=ignore_memory)

    def compile(self, target: str = "cpu", *, tune: float | None = None) -> Compiled:
        """Compile the program: all the stages at once, with `Partitioned.compile`'s ``target`` and ``tune``.

        A program that is in the cache is not partitioned again.

        >>> [result.shape for result in program.compile()(*arguments)]
        [(2048, 512), (512, 2048), ()]
        """
        return compile_program(self, target, tune=tune, remote=remote_compiler)


@dataclass(frozen=True)
class Propagated(PropagatedProgram):
    """A program in which every value has a sharding; ``provenance`` records the origin of each one.

    >>> propagated.program is program
    True
    """

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
        """Make the program that every device runs, with the collectives that it needs.

        - ``machine``: layouts and collectives minimise the modelled time on this machine: a name such as
          ``"h100-dgx"``, or the path of a description. Without one, they minimise the bytes sent.
        - ``plan``: ``"auto"`` chooses the layouts inside the program within a budget of work, and keeps them where they
          are better. ``"propagated"`` keeps the propagated layouts. ``"global"`` chooses them for the whole program.
        - ``memory``: limit of the plan in bytes per device; default: the memory of the propagated layouts.
        - ``windowed_einsum``: products compute with parts of an operand while other parts are in transfer.
          ``pipelined_loops``: loops gather for the next iteration and reduce for the last. Both are ``"never"``,
          ``"always"`` where possible, or ``"auto"``: where they take less modelled time on the machine. For each loop
          the ``judge`` decides: no step is slower than with ``"never"``.
        - ``decomposed_rings``: no collective permute contains a cycle.
        - ``judge`` compares plans; default: simulation for a machine, otherwise bytes sent and buffers.
        - ``interface`` holds arguments and results whose layouts the plan may choose; default: results without a
          sharding.

        Raises `InputError` for unknown machines and words, `PlanError` where no plan fits the memory.

        >>> partitioned = propagated.partition(machine="h100-dgx", plan="propagated")
        >>> [c["op"] for c in partitioned.report()["collectives"]]
        ['all-reduce', 'all-reduce', 'all-reduce']
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
class Partitioned(Reported, PartitionedProgram):
    """The program that every device runs, with collectives; ``module`` is the program, ``plan`` the plan of layouts.

    ``plan`` is None where layouts are as propagated. Where ``plan="auto"`` decided so, ``why_no_plan`` says why.

    >>> partitioned.num_devices
    4
    """

    propagated: Propagated

    def __repr__(self) -> str:
        return outline("Partitioned", self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import partitioned_html

        return partitioned_html(self.report())

    @property
    def program(self) -> Program:
        return self.propagated.program

    @cached_property
    def _report(self) -> dict[str, Any]:
        from shardc.analysis.device_memory import with_memory

        return with_memory(self.facts, self)

    def explanation(
        self,
        machine: str | Path | None = None,
        *,
        remedies: int = 0,
        tries: int = 12,
        seconds: float = 30.0,
        thresholds: Mapping[str, float] | None = None,
    ) -> Explanation:
        """Explain why each collective exists, the most costly first, and list warnings.

        With a ``machine`` costs are modelled seconds, otherwise bytes. For the first ``remedies`` collectives, a search
        tries annotations that make the whole program cheaper. It tries at most ``tries`` for each, and no new one after
        ``seconds``. ``thresholds`` maps names of `shardc.analysis.explain.diagnostics.survey.Thresholds` to shares
        between 0 and 1. Shares from there on become warnings.

        Raises `InputError` for unknown machines and thresholds.

        >>> told = partitioned.explanation()
        >>> told.collectives[0].op, told.collectives[0].axes, told.collectives[0].payload_bytes
        ('all-reduce', ('data',), 4194304)
        """
        from shardc.analysis.explain.diagnostics.survey import thresholds_of
        from shardc.analysis.explain.explain import explain
        from shardc.analysis.explain.remedies import SearchLimits

        limits = SearchLimits(remedies, tries, seconds)
        return explain(self, None if machine is None else str(machine), limits, thresholds_of(thresholds or {}))

    def difference(self, other: Partitioned, machine: str | Path | None = None) -> Difference:
        """Compare this program with ``other``, the same program with other annotations.

        With a ``machine``, totals have modelled seconds as well as bytes.

        >>> other = program.annotate({"weights['up']": P(), "weights['down']": P()}).partition()
        >>> change = partitioned.difference(other)
        >>> change.before.wire_bytes < change.after.wire_bytes
        True
        """
        from shardc.analysis.explain.difference import difference

        return difference(self, other, None if machine is None else str(machine))

    def write_report(
        self,
        path: str | Path,
        *,
        machine: str | Path | None = None,
        mapping: GivenMapping | None = None,
        remedies: int = 0,
        seconds: float = 30.0,
    ) -> None:
        """Write one HTML page: program, collectives and their reasons, tensors, memory, and a simulated step.

        The page works from disk, without a network. The step needs a ``machine``; default: the one of `partition`.
        ``mapping`` is that of `simulate`, ``remedies`` and ``seconds`` are those of `explanation`. Without remedies,
        equal programs make equal bytes.

        Raises `InputError` for files that cannot be written, unknown machines, and mappings that do not fit.

        >>> partitioned.write_report("report.html", machine="h100-dgx")
        """
        from shardc.analysis.report.write import write_report

        write_report(self, path, machine=machine, mapping=mapping, remedies=remedies, seconds=seconds)

    def draw_plan(self, path: str | Path) -> None:
        """Write the plan of layouts as a picture (SVG): propagated and chosen layouts, costs of alternatives, and
        memory.

        Raises `InputError` if there is no plan, and for files that cannot be written.

        >>> program.propagate().partition(plan="global").draw_plan("plan.svg")
        """
        from shardc.launcher.drawings.draw_plan import write_plan_svg

        write_plan_svg(self.module.name, self.plan, path)

    def compile(self, target: str = "cpu", *, profile: bool = False, tune: float | None = None) -> Compiled:
        """Compile to native code, loaded on this job's devices: virtual ones, or MPI ranks under a launcher.

        ``target`` is ``cpu``, or ``cuda`` for the GPU of this machine. ``cuda:sm_90`` or another kind of GPU saves the
        program for another machine. ``cuda-emulated`` runs the threads of GPU code on this processor, slowly.
        ``profile`` records the time of each kernel, at a cost of some 50 ns each; `Compiled.profile` works without it.
        ``tune`` is the number of seconds in which other tiles, chunks and fusions are tried on this machine (default:
        ``SHARDC_TUNE``, else none). The cache keeps the best. Tuned results differ by no more than the rounding of
        reordered sums.

        Raises `UnsupportedError` for unknown targets and for tuning on GPUs, `EnvironmentProblem` where ``cuda`` has no
        GPU, with the reason.

        >>> weights, *_ = partitioned.compile()(*arguments)
        >>> weights
        shardc.Array(f32[2048,512], [{model}, {}])
        """
        return compile_partitioned(self, target, profile=profile, tune=tune, remote=remote_compiler)

    @stage("compile")
    def compile_ahead(
        self, folder: str | Path, *, name: str = "", cpu: str = "", system: str = ""
    ) -> tuple[AheadProgram, list[Path]]:
        """Write object file, C header and source, manifest, example and Makefile: a program that runs without Python.

        ``cpu`` is ``native`` (the default) or a processor such as ``x86-64-v3`` or ``aarch64``. ``system`` is ``linux``
        or ``macos``. ``name`` is the program's name in C. Returns the program and the paths of the files. Raises
        `InputError` for unknown names and a folder that cannot be written.

        >>> ahead, files = partitioned.compile_ahead("ahead", cpu="x86-64-v3", name="train")
        >>> sorted(file.suffix for file in files if file.stem == "train")
        ['.h', '.json', '.o']
        """
        from shardc.analysis.ahead import compile_ahead, write_ahead

        program = compile_ahead(self, name=name, cpu=cpu, system=system)
        return program, write_ahead(program, folder)

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mapping: GivenMapping | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """Simulate a step on a described machine: time and where it goes, links, memory, the critical path.

        ``machine`` is a name with or without a number of devices (``"h100-dgx:64"``, ``"tpu-v5p:4x4x4"``), or the path
        of a description; default: the machine of `partition`. ``mapping`` places mesh axes on links
        (``"data=infiniband,model=nvlink"``); default: the outermost axis on the outermost links. The simulation needs
        no hardware and no tensors, and takes the same time for any number of devices.

        Raises `InputError` for unknown machines, meshes that do not fit the machine, and programs larger than its
        memory. With ``ignore_memory`` such programs are simulated, and `Simulation.fits` is False.

        >>> step = partitioned.simulate("h100-dgx")
        >>> step.compute_seconds < step.step_seconds
        True
        """
        from shardc.analysis.simulate.simulate_program import simulate_partitioned

        return simulate_partitioned(self, machine, mapping=mapping, ignore_memory=ignore_memory)


def as_stage(program: SourceProgram) -> Program:
    """``program`` with what the packages above the partitioner add."""
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
