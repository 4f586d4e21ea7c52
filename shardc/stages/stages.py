"""The stages of a program: `Program` (annotated) -> `Propagated` -> `Partitioned` -> `Compiled`.

Each stage is immutable and can be printed; each step names what went wrong in the terms of its input.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardc.analysis.report.stage_facts import Reported
from shardc.compiler.outline import outline
from shardc.compiler.targets import check_target
from shardc.hlo.config import OVERLAPS, Config
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.custom_calls import CustomCall
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.progress import stage
from shardc.hlo.text.printer import print_module
from shardc.hlo.transforms.known_custom_calls import require_new
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.driver.compiled import Compiled, job_config
from shardc.partitioner.options import Choice, PartitionOptions
from shardc.stages.executables import making_of, making_of_partitioned

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Difference, Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.compiler.ahead.program import AheadProgram

__all__ = ["Compiled", "Partitioned", "Program", "Propagated", "job_config", "since"]


log = logging.getLogger("shardc")


@dataclass(frozen=True)
class Program:
    """A global program with some annotations.

    ``jax`` knows the pytrees of a program that came from a JAX or NumPy function; ``original`` are the bytes of the
    file it was read from. ``content`` is a digest of all that the module was made from, empty where nobody knows; the
    cache goes by it. Made by `shardc.load`, `shardc.from_jax` and `shardc.trace`.
    """

    module: Module
    jax: Any = None
    original: bytes = b""
    config: Config = field(default_factory=job_config)
    seconds: Mapping[str, float] = field(default_factory=dict)
    content: str = ""

    def __repr__(self) -> str:
        return outline("Program", self.module)

    @property
    def mesh(self) -> Mesh | None:
        """The device mesh, None before one is known."""
        return self.module.mesh

    @property
    def num_devices(self) -> int:
        """How many devices the program is for: its mesh's, or as many as its shardings or its header say."""
        from shardc.sharding.notations.tile_assignments import device_count

        return device_count(self.module)

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names that `annotate` takes, by parameter."""
        return self.module.argument_names

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> Program:
        """Add shardings to values by name or glob, and give or resize the mesh.

        Example: ``program.annotate({"w1": P(None, "model")}, mesh=Mesh({"data": 2, "model": 4}))``. Raises
        `AnnotationError` for a name, axis or dimension that is not there.
        """
        from shardc.sharding.notations.annotate import annotate
        from shardc.sharding.notations.tile_assignments import with_axis_shardings

        module = self.module
        wanted = as_mesh(mesh) if mesh is not None else None
        if wanted is not None and module.mesh is None:
            # Tile shardings name no axes: they are read over this mesh.
            module, wanted = with_axis_shardings(module.with_(mesh=wanted, num_partitions=wanted.size)), None
        if annotations or wanted is not None:
            module = annotate(module, annotations or {}, wanted)
        return replace(self, module=module, content="")

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

    @stage("propagate")
    def propagate(self, *, conservative: bool = False) -> Propagated:
        """Give every value a sharding; annotations are kept, the rest follows from the operations.

        With ``conservative`` no axis is split into parts, and nothing spreads through dimensions whose elements move
        (slices, padding, concatenation, windows): fewer reshards to wonder about, less sharding.
        A program that is partitioned already (a dump from behind XLA's partitioner) stays as it is.
        """
        from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
        from shardc.sharding.notations.tile_assignments import with_axis_shardings
        from shardc.sharding.propagate import propagate
        from shardc.sharding.propagation.options import PropagationOptions

        start = time.perf_counter()
        if is_partitioned(self.module):
            log.warning("%s is partitioned already, for %d devices: it is left as it is", *_size(self.module))
            return Propagated(self, self.module, _AsGiven(), self.seconds)
        options = PropagationOptions(conservative=conservative)
        result = propagate(with_axis_shardings(self.module), self.config, options=options)
        seconds = {**self.seconds, **since("propagate", start)}
        return Propagated(self, result.module, result.provenance, seconds, result.outcome, conservative)

    def partition(
        self,
        *,
        machine: str | Path | None = None,
        windowed_einsum: Choice = "auto",
        pipelined_loops: Choice = "auto",
        decomposed_rings: bool = False,
    ) -> Partitioned:
        """`propagate`, then `Propagated.partition`."""
        return self.propagate().partition(
            machine=machine,
            windowed_einsum=windowed_einsum,
            pipelined_loops=pipelined_loops,
            decomposed_rings=decomposed_rings,
        )

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mesh: Mesh | None = None,
        mapping: str | Mapping[str, str] | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """What a step takes on a described machine, see `Partitioned.simulate`: all the stages at once.

        A program that XLA has partitioned and scheduled (``compiled.as_text()``, ``is_scheduled=true``) is simulated as
        it is: its order, its fusions, its asynchronous pairs. ``mesh`` then names its devices, for ``mapping``; of
        other programs it is the mesh, or resizes it.
        """
        from shardc.analysis.simulate.simulate_partitioned import simulate_scheduled
        from shardc.compiler.lower.as_scheduled import is_scheduled

        options: dict[str, Any] = {"mapping": mapping, "ignore_memory": ignore_memory}
        if is_scheduled(self.module):
            return simulate_scheduled(self, machine, mesh=mesh, **options)
        program = self if mesh is None else self.annotate({}, mesh=mesh)
        return program.partition(machine=machine).simulate(machine, **options)

    def compile(self, target: str = "cpu", *, tune: float | None = None) -> Compiled:
        """All the stages at once; what the cache knows is not partitioned again. ``target`` and ``tune`` as
        `Partitioned.compile`."""
        check_target(target)
        if tune is not None:
            return self.tuned(tune).compile(target)
        making = making_of(self.content, self.config, lambda: self, target)
        return Compiled(making, self.jax, self.config, self.seconds, self.partition)

    def tuned(self, seconds: float) -> Program:
        """The program, to be compiled with so many seconds of tuning."""
        if not seconds >= 0:
            raise InputError(f"tune={seconds}", fix="give the seconds that tuning may take, 0 for none")
        return replace(self, config=replace(self.config, tune=float(seconds)))

    def scheduled(
        self,
        *,
        overlap: str | None = None,
        machine: str | Path | None = None,
        measured: str | Path | None = None,
    ) -> Program:
        """The program, to be compiled so that collectives ``overlap`` with computing: ``never``, ``always`` where they
        can, or ``auto``: where the ``machine`` (a name or a file; default: this computer) can do both and it pays.

        ``measured`` is a file of times that were measured (`Profile.write_measured`), which count instead of the
        model's. What is None stays as it is. Example: ``program.scheduled(overlap="always").compile()``.
        """
        if overlap is not None and overlap not in OVERLAPS:
            raise InputError(f"overlap is {overlap!r}", fix=f"use one of {', '.join(OVERLAPS)}")
        changes: dict[str, Any] = {
            "overlap": overlap,
            "machine": None if machine is None else str(machine),
            "profile": None if measured is None else Path(measured),
        }
        changes = {k: v for k, v in changes.items() if v is not None}
        return replace(self, config=replace(self.config, **changes)) if changes else self

    @property
    def for_one_device(self) -> bool:
        """Is it the program of one device as it is, with nothing to propagate and to partition?"""
        module = self.module
        return module.mesh is None and not module.partitioned and self.num_devices == module.replica_count == 1

    def as_text(self) -> str:
        """The program as HLO text."""
        return print_module(self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import program_html

        return program_html(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings where it has annotations."""
        return self.write_back(self.module)

    def write_back(self, module: Module, versions: Sequence[Any] = ()) -> str:
        """The MLIR that the program was read from, with the shardings of ``module``, a later form of it; ``versions``
        are its functions as their callers see them."""
        original = self.original or (self.jax.original() if hasattr(self.jax, "original") else b"")
        if not original:
            raise UnsupportedError(
                "only a program that came from MLIR or JAX can be written as MLIR", fix="write it as HLO text"
            )
        from shardc.hlo.stablehlo.writer import write_stablehlo

        return write_stablehlo(original, module, versions)


@dataclass(frozen=True)
class Propagated:
    """Every value has a sharding; ``provenance`` knows why."""

    program: Program
    module: Module
    provenance: Any
    seconds: Mapping[str, float]
    outcome: Any = None
    conservative: bool = False

    def __repr__(self) -> str:
        return outline("Propagated", self.module)

    @stage("partition")
    def partition(
        self,
        *,
        machine: str | Path | None = None,
        windowed_einsum: Choice = "auto",
        pipelined_loops: Choice = "auto",
        decomposed_rings: bool = False,
    ) -> Partitioned:
        """Rewrite into the program that every device runs, with the collectives it needs.

        They are chosen for the fewest bytes, or for the least modelled time on a ``machine``: a name such as
        ``"h100-dgx"`` or the path of a description. ``windowed_einsum`` (products compute with parts of an operand
        while others travel) and ``pipelined_loops`` (loops gather for the next iteration, reduce for the last) are
        ``"never"``, ``"always"`` where possible, or ``"auto"``: where they take less modelled time on the machine.
        The machine counts for the schedule of collectives too (`Program.scheduled`).
        With ``decomposed_rings`` no permute leads in a circle. Raises `InputError` for unknown machines and words.
        """
        from shardc.costs.machines.machine import load_machine
        from shardc.partitioner.partition import partition
        from shardc.partitioner.prepare.adopt_partitioned import adopt, is_partitioned

        start = time.perf_counter()
        given = is_partitioned(self.module)
        machine = machine or self.program.config.machine or None
        described = None if machine is None else load_machine(machine)
        options = PartitionOptions(windowed_einsum, pipelined_loops, decomposed_rings)
        module = (
            adopt(self.module)
            if given
            else partition(self.module, self.program.config, machine=described, options=options)
        )
        source = replace(self, program=self.program.scheduled(machine=machine))
        asked: dict[str, Any] = {"machine": machine, "decomposed_rings": decomposed_rings}
        asked |= {"windowed_einsum": windowed_einsum, "pipelined_loops": pipelined_loops}
        return Partitioned(source, module, {**self.seconds, **since("partition", start)}, MappingProxyType(asked))

    def provenance_dict(self) -> dict[str, Any]:
        """Where every axis came from, as plain data (docs/cli.md has the schema).

        Raises `InputError` for a program that was partitioned already.
        """
        from shardc.sharding.provenance.history import Provenance
        from shardc.sharding.provenance.history_json import provenance_dict

        if not isinstance(self.provenance, Provenance):
            raise InputError("the program is partitioned already: nothing was propagated")
        return provenance_dict(self.provenance)

    def explain(self, value: str) -> list[str]:
        """Where the sharding of the value called ``value`` comes from."""
        return list(self.provenance.explain(value))

    def stories(self, values: Sequence[str]) -> dict[str, list[str]]:
        """`explain` of several, by value."""
        return {value: self.explain(value) for value in values}

    def as_text(self) -> str:
        """HLO text with a sharding on every instruction."""
        return print_module(self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import propagated_html

        return propagated_html(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings on its values."""
        versions = [] if self.outcome is None else self.outcome.versions()
        if len(versions) == len({v.source for v in versions}):
            return self.program.write_back(self.module)
        return self.program.write_back(self.outcome.as_written(), versions)


@dataclass(frozen=True)
class Partitioned(Reported):
    """The per-device program."""

    propagated: Propagated
    module: Module
    seconds: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return outline("Partitioned", self.module)

    @property
    def program(self) -> Program:
        return self.propagated.program

    @property
    def num_devices(self) -> int:
        return self.module.num_partitions

    def as_text(self) -> str:
        """HLO text that XLA compiles and runs as it is."""
        return print_module(self.module)

    def _repr_html_(self) -> str:
        from shardc.analysis.report.fragments import partitioned_html

        return partitioned_html(self.report())

    @cached_property
    def _report(self) -> dict[str, Any]:
        from shardc.partitioner.report import build_report

        return build_report(self.module, seconds=dict(self.seconds))

    @stage("explain")
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
        from shardc.analysis.explain.remedies import Limits

        limits = Limits(remedies, tries, seconds)
        return explain(self, None if machine is None else str(machine), limits, thresholds_of(thresholds or {}))

    def difference(self, other: Partitioned, machine: str | Path | None = None) -> Difference:
        """What changes from this one to ``other``: the same program with other annotations. With a ``machine`` totals
        have modelled seconds."""
        from shardc.analysis.explain.difference import difference

        return difference(self, other, None if machine is None else str(machine))

    @stage("report")
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

    @property
    def compiled_module(self) -> Module:
        """What `compile` compiles: the per-device program, or for one device the program itself."""
        return self.program.module if self.program.for_one_device else self.module

    @stage("compile")
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
        check_target(target)
        if tune is not None:
            tuned = replace(self.propagated, program=self.program.tuned(tune))
            return replace(self, propagated=tuned).compile(target, profile=profile)
        making = making_of_partitioned(self, profile=profile, target=target)
        return Compiled(making, self.program.jax, self.program.config, self.seconds, lambda: self)

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

    @stage("simulate")
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
        from shardc.analysis.simulate.simulate_partitioned import simulate_partitioned

        return simulate_partitioned(self, machine, mapping=mapping, ignore_memory=ignore_memory)


def _size(module: Module) -> tuple[str, int]:
    return module.source_file or module.name, module.num_partitions


class _AsGiven:
    """The provenance of a program that was given partitioned."""

    def explain(self, value: str) -> list[str]:
        return [f"{value}: the program was given partitioned, so nothing was propagated"]


def since(stage: str, start: float) -> dict[str, float]:
    """Seconds of a ``stage`` that began at ``start`` of `time.perf_counter`."""
    return {stage: time.perf_counter() - start}
