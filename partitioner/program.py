"""A program on its way to the devices, as plain data: annotated, propagated, partitioned.

Each record is immutable and has what the next step needs: a module, settings, and what became known on the way.
Compiling, running and analysing a program take these records.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from shardc.hlo.config import OVERLAPS, Config
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.progress import stage
from shardc.hlo.units import kind_text, require_bytes
from shardc.partitioner.options import DEFAULT_PLAN, Choice, PartitionOptions, Plan
from shardc.sharding.notations.device_count import device_count

if TYPE_CHECKING:
    from shardc.hlo.stablehlo.writer import FunctionVersion
    from shardc.partitioner.free_interface import FreeInterface
    from shardc.partitioner.plan.judge import Judge
    from shardc.partitioner.plan.plan_reasons import PlanReasons
    from shardc.sharding.propagation.export import PropagationOutcome
    from shardc.sharding.provenance.history import Provenance

__all__ = [
    "PartitionedProgram",
    "PropagatedProgram",
    "SourceProgram",
    "interface_names",
    "not_a_program",
    "schedule_config",
    "seconds_since",
]

log = logging.getLogger("shardc")


@dataclass(frozen=True)
class SourceProgram:
    """A global program with some annotations.

    ``jax`` knows the pytrees of a program that came from a JAX or NumPy function; ``original`` are the bytes of the
    file it was read from. ``content`` is a digest of all that the module was made from, empty where nobody knows; the
    cache goes by it. With ``strict_interface`` arguments and results have only shards that XLA can pass: even ones of
    whole axes, and unreduced ones as partial values.
    """

    module: Module
    jax: Any = None
    original: bytes = b""
    config: Config = field(default_factory=Config)
    seconds: Mapping[str, float] = field(default_factory=dict)
    content: str = ""
    strict_interface: bool = False

    @property
    def mesh(self) -> Mesh | None:
        """The device mesh, None before one is known."""
        return self.module.mesh

    @property
    def num_devices(self) -> int:
        """The number of devices of the mesh; without a mesh, that of the shardings or of the program's header."""
        return device_count(self.module)

    @property
    def arg_names(self) -> tuple[str, ...]:
        """The parameter names that `annotate` accepts, in order."""
        return self.module.argument_names

    @property
    def for_one_device(self) -> bool:
        """Whether this is the program of one device as it is, with nothing to propagate and to partition."""
        module = self.module
        return module.mesh is None and not module.partitioned and self.num_devices == module.replica_count == 1

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Mesh | None = None) -> Self:
        """Add shardings to values by name or glob, and give or resize the mesh.

        Raises `AnnotationError` for a name, axis or dimension that is not there.
        """
        from shardc.sharding.notations.annotate import annotate
        from shardc.sharding.notations.read_over import read_over

        module = self.module
        if mesh is not None and module.mesh is None:
            module, mesh = read_over(module, mesh), None
        if annotations or mesh is not None:
            module = annotate(module, annotations or {}, mesh)
        return replace(self, module=module, content="")

    def tuned(self, seconds: float) -> Self:
        """The program with a time budget for tuning: `compile` tries other tiles, chunks and fusions for ``seconds``.

        Raises `InputError` for a negative or infinite number.

        >>> program.tuned(2.0).config.tune
        2.0
        """
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise InputError(f"tune={seconds!r}", fix="give the seconds that tuning may take, 0 for no tuning")
        return replace(self, config=replace(self.config, tune=float(seconds)))

    def scheduled(
        self,
        *,
        overlap: str | None = None,
        machine: str | Path | None = None,
        measured: str | Path | None = None,
    ) -> Self:
        """The program with other settings for its schedule: how its collectives overlap with computing.

        ``overlap`` is ``never``, ``always`` where possible, or ``auto``: where the ``machine`` (a name or a file;
        default: this computer) can compute during transfers and this takes less time. ``measured`` is a file of
        measured times (`Profile.write_measured`), which replace the model's. None leaves a setting as it is. Raises
        `InputError` for other values.

        >>> program.scheduled(overlap="always").config.overlap
        'always'
        """
        return replace(self, config=schedule_config(self.config, overlap, machine, measured))

    @stage("propagate")
    def propagate(self, *, conservative: bool = False) -> PropagatedProgram:
        """Give every value a sharding; annotations are kept, and the operations determine the others.

        With ``conservative`` no axis is split into parts, and nothing spreads through dimensions whose elements move
        (slices, padding, concatenation, windows): fewer reshards to wonder about, less sharding.
        A program that is partitioned already (a dump from behind XLA's partitioner) stays as it is.
        """
        from shardc.partitioner.prepare.adopt_partitioned import is_partitioned
        from shardc.sharding.notations.tile_assignments import convert_to_axes
        from shardc.sharding.propagate import propagate
        from shardc.sharding.propagation.options import PropagationOptions

        start = time.perf_counter()
        if is_partitioned(self.module):
            name = self.module.source_file or self.module.name
            log.warning(
                "%s is already partitioned, for %d devices: it stays unchanged", name, self.module.num_partitions
            )
            return PropagatedProgram(self, self.module, None, self.seconds)
        options = PropagationOptions(conservative=conservative, strict_interface=self.strict_interface)
        result = propagate(convert_to_axes(self.module), self.config, options=options)
        seconds = {**self.seconds, **seconds_since("propagate", start)}
        return PropagatedProgram(self, result.module, result.provenance, seconds, result.outcome, conservative)

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
    ) -> PartitionedProgram:
        """`propagate`, then `PropagatedProgram.partition`."""
        return self.propagate().partition(
            machine=machine,
            windowed_einsum=windowed_einsum,
            pipelined_loops=pipelined_loops,
            decomposed_rings=decomposed_rings,
            plan=plan,
            memory=memory,
            judge=judge,
        )

    def as_text(self) -> str:
        """The program as HLO text, which keeps names, shardings and the mesh.

        >>> print(program.as_text().splitlines()[0][:18])
        HloModule jit_step
        """
        from shardc.hlo.text.carried import print_with_mesh

        return print_with_mesh(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings for its annotations.

        Raises `UnsupportedError` for a program that did not come from MLIR or JAX.

        >>> "sdy.mesh" in program.as_stablehlo()
        True
        """
        return self.write_back(self.module)

    def write_back(self, module: Module, versions: Sequence[FunctionVersion] = ()) -> str:
        """The MLIR that the program was read from, with the shardings of ``module``, a later form of the program.

        ``versions`` are its functions as their callers see them. Raises `UnsupportedError` as `as_stablehlo`.

        >>> "sdy.sharding" in program.write_back(propagated.module)
        True
        """
        original = self.original or (self.jax.original() if hasattr(self.jax, "original") else b"")
        if not original:
            raise UnsupportedError(
                "only a program that was read from MLIR or JAX can be written as MLIR",
                fix="write it as HLO text, to a file named *.hlo",
            )
        from shardc.hlo.stablehlo.writer import write_stablehlo

        return write_stablehlo(original, module, versions)


def schedule_config(
    config: Config, overlap: str | None, machine: str | Path | None, measured: str | Path | None
) -> Config:
    """``config`` with what is not None; see `SourceProgram.scheduled`."""
    if overlap is not None and overlap not in OVERLAPS:
        raise InputError(f"unknown value {overlap!r}", where="option overlap", fix=f"use one of {', '.join(OVERLAPS)}")
    changes: dict[str, Any] = {
        "overlap": overlap,
        "machine": None if machine is None else str(machine),
        "profile": None if measured is None else Path(measured),
    }
    return replace(config, **{k: v for k, v in changes.items() if v is not None})


@dataclass(frozen=True)
class PropagatedProgram:
    """Every value of ``program`` has a sharding in ``module``; ``provenance`` knows why."""

    program: SourceProgram
    module: Module
    provenance: Provenance | None
    seconds: Mapping[str, float]
    outcome: PropagationOutcome | None = None
    conservative: bool = False

    @stage("partition")
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
    ) -> PartitionedProgram:
        """Rewrite into the program that every device runs, with the collectives it needs.

        They are chosen for the fewest bytes, or for the least modelled time on a ``machine``: a name such as
        ``"h100-dgx"`` or the path of a description. ``windowed_einsum`` (products compute with parts of an operand
        while others travel) and ``pipelined_loops`` (loops gather for the next iteration, reduce for the last) are
        ``"never"``, ``"always"`` where possible, or ``"auto"``: where they take less modelled time on the machine. For
        each loop the ``judge`` decides; with it, unchanging collectives stay in loops that hide them.
        The machine counts for the schedule of collectives too (`SourceProgram.scheduled`).
        With ``decomposed_rings`` no permute leads in a circle. With ``plan="propagated"`` layouts inside of the program
        are as they propagate, with ``plan="global"`` they are chosen for all of it at once, with ``plan="auto"``
        (`DEFAULT_PLAN`) within a budget and where that pays: within ``memory`` bytes per device (default: what
        propagated ones take), and kept where ``judge`` (default: the models) says that they are better; so are those of
        the arguments and results of an ``interface``, such as `find_free_interface(self.program.module)`; default: of
        `find_free_results`. Raises `InputError` for unknown machines and words.
        """
        require_bytes(memory, "memory")
        if memory is not None and plan == "propagated":
            raise InputError('memory= is the limit of a plan, and plan="propagated" has none', fix="omit one of them")
        from shardc.costs.machines.machine import load_machine
        from shardc.partitioner.free_interface import find_free_results
        from shardc.partitioner.partition import partition
        from shardc.partitioner.prepare.adopt_partitioned import adopt, is_partitioned

        start = time.perf_counter()
        given = is_partitioned(self.module)
        machine = machine or self.program.config.machine or None
        described = None if machine is None else load_machine(machine)
        partial = self.program.strict_interface
        chosen = interface
        if chosen is None and plan != "propagated" and not given:
            chosen = find_free_results(self.program.module, self.module)
        options = PartitionOptions(windowed_einsum, pipelined_loops, decomposed_rings, partial, plan, memory, chosen)
        told: list[PlanReasons | str] = []
        terms: dict[str, Any] = {"machine": described, "options": options, "judge": judge, "tell": told.append}
        module = adopt(self.module) if given else partition(self.module, self.program.config, **terms)
        source = replace(self, program=self.program.scheduled(machine=machine))
        asked: dict[str, Any] = {"machine": machine, "decomposed_rings": decomposed_rings}
        asked |= {"windowed_einsum": windowed_einsum, "pipelined_loops": pipelined_loops}
        if plan != DEFAULT_PLAN or memory is not None:
            asked |= {"plan": plan, "memory": memory}
        if interface is not None:
            asked["interface"] = interface
        seconds = {**self.seconds, **seconds_since("partition", start)}
        reasons = told[0] if told else None
        taken, why = (None, reasons) if isinstance(reasons, str) else (reasons, "")
        return PartitionedProgram(source, module, seconds, MappingProxyType(asked), taken, why)

    def provenance_dict(self) -> dict[str, Any]:
        """Where every axis of every sharding came from, as plain data for JSON.

        The page about reports lists its fields. Raises `InputError` for a program that was partitioned already.

        >>> sorted(propagated.provenance_dict())
        ['mesh', 'steps', 'values', 'version']
        """
        from shardc.sharding.provenance.history_json import provenance_dict

        history = self.provenance
        if history is None:
            raise InputError("the program was read already partitioned, so there is no propagation to show")
        return provenance_dict(history)

    def explain(self, value: str | None = None) -> list[str]:
        """Where the sharding of the value called ``value`` came from, as lines of text.

        Without a ``value``, these are the lines of all arguments and results. Raises `AnnotationError` for a name that
        the program lacks.

        >>> propagated.explain("x")[0]
        'x: [{data}, {}]'
        """
        if self.provenance is None:
            return [f"{value or self.module.name}: the program was given partitioned, so nothing was propagated"]
        from shardc.sharding.provenance.explain_value import explain_value

        names = interface_names(self.module) if value is None else (value,)
        return [line for name in names for line in explain_value(self.provenance, name)]

    def stories(self, values: Sequence[str]) -> dict[str, list[str]]:
        """`explain` of several values, by name. A name with ``*`` or ``?`` is a glob: ``*`` is every value.

        >>> list(propagated.stories(["x", "target"]))
        ['x', 'target']
        """
        known = self.provenance
        names = values if known is None else [name for value in values for name in known.matching(value)]
        return {name: self.explain(name) for name in names}

    def as_text(self) -> str:
        """HLO text with a sharding on every instruction.

        >>> "sharding={" in propagated.as_text()
        True
        """
        from shardc.hlo.text.carried import print_with_mesh

        return print_with_mesh(self.module)

    def as_stablehlo(self) -> str:
        """The MLIR that the program was read from, with ``sdy`` shardings on its values.

        Raises `UnsupportedError` for a program that did not come from MLIR or JAX.

        >>> "sdy.sharding" in propagated.as_stablehlo()
        True
        """
        versions = [] if self.outcome is None else self.outcome.versions()
        if self.outcome is None or len(versions) == len({v.source for v in versions}):
            return self.program.write_back(self.module)
        return self.program.write_back(self.outcome.as_written(), versions)


@dataclass(frozen=True)
class PartitionedProgram:
    """The per-device program; ``options`` are those of `PropagatedProgram.partition`, ``plan`` says what was planned
    and why. It is None where layouts are as propagated; where ``plan="auto"`` decided so, ``why_no_plan`` says why."""

    propagated: PropagatedProgram
    module: Module
    seconds: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)
    plan: PlanReasons | None = None
    why_no_plan: str = ""

    @property
    def program(self) -> SourceProgram:
        """The program before its propagation."""
        return self.propagated.program

    @property
    def num_devices(self) -> int:
        return self.module.num_partitions

    @property
    def compiled_module(self) -> Module:
        """What is compiled: the per-device program, or for one device the program itself."""
        return self.program.module if self.program.for_one_device else self.module

    def as_text(self) -> str:
        """The per-device program as HLO text, which XLA compiles and runs as it is.

        >>> "all-reduce(" in partitioned.as_text()
        True
        """
        from shardc.hlo.text.printer import print_module

        return print_module(self.module)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The report of what is known before the program is lowered: its memory is an estimate.

        >>> partitioned.facts["peak_bytes_estimated"]
        True
        """
        from shardc.partitioner.report import build_report

        return build_report(self.module, seconds=dict(self.seconds), plan=self.plan)

    def report(self) -> dict[str, Any]:
        """The `facts`; the stages of `shardc` say the memory of the lowered program instead of an estimate.

        >>> partitioned.report()["devices"]
        4
        """
        return dict(self.facts)


def seconds_since(name: str, start: float) -> dict[str, float]:
    """Seconds of a stage that began at ``start`` of `time.perf_counter`."""
    return {name: time.perf_counter() - start}


def interface_names(module: Module) -> tuple[str, ...]:
    """The names of the instructions that are arguments, then of those that give results, each once."""
    root = module.entry.root
    ends = (*module.parameters, *(root.operands if root.opcode == "tuple" else (root,)))
    return tuple(dict.fromkeys(i.name for i in ends))


def not_a_program(given: Any) -> InputError:
    """The error for ``given`` where a `SourceProgram` is asked for."""
    has_one = isinstance(getattr(given, "program", None), SourceProgram)
    fix = "pass its attribute .program" if has_one else "make one with shardc.load, from_jax, from_torch or trace"
    return InputError(f"{kind_text(given)} is not a program", fix=fix)
