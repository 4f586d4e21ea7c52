"""Stages at a compile service: `RemoteProgram`, `RemotePropagated` and `RemotePartitioned` mirror those of
`shardc.launcher.stages`, with the same methods; what they give is made at the service and rebuilt here.

Nothing is asked before something is wanted: a partitioned program that is only simulated is one order.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from shardc.compiler.gpu.names import check_target, find_target, name_of
from shardc.hlo.config import OVERLAPS, Config
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.mesh import Mesh
from shardc.launcher.compiled import Compiled
from shardc.launcher.meshes import as_mesh
from shardc.launcher.remote.executables import FILE, compiled_by, repeat_warnings
from shardc.launcher.remote.requests import Hear, Requests, Result
from shardc.launcher.remote.terms import (
    cpu_of,
    machine_terms,
    mapping_text,
    mesh_sizes,
    need_none_of,
    settings_terms,
    spec_text,
)
from shardc.launcher.service.orders import (
    CompileOrder,
    ExplainOrder,
    InspectOrder,
    Order,
    PartitionOrder,
    ReportOrder,
    SimulateOrder,
)
from shardc.partitioner.options import Choice

if TYPE_CHECKING:
    from shardc.compiler.ahead.program import AheadProgram
    from shardc.compiler.lower.memory_timeline import MemoryTimeline
    from shardc.launcher.explain.explanation import Difference, Explanation
    from shardc.launcher.service.results import ProgramFacts
    from shardc.launcher.simulate.simulation import Simulation
    from shardc.launcher.stages import Partitioned, Program
    from shardc.native.target import Target

__all__ = ["RemotePartitioned", "RemoteProgram", "RemotePropagated"]

O = TypeVar("O", bound=Order)


@dataclass(frozen=True)
class RemoteProgram:
    """A program to be worked on at a service: ``data`` are the bytes of a file (HLO, MLIR, exported) that errors call
    ``name``; ``specs`` and ``sizes`` are annotations and mesh as the command line has them.

    ``local`` is the program of this process, not yet annotated so, that it is the text of. Made by `Client.program`.
    """

    requests: Requests
    data: bytes
    name: str
    config: Config
    specs: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    local: Program | None = None

    def __repr__(self) -> str:
        said = [f"{len(self.data)} bytes"] + [f"{name}={size}" for name, size in self.sizes.items()]
        said += [f"{name}: {spec}" for name, spec in self.specs.items()]
        return f"<RemoteProgram {self.name or 'of this process'} ({', '.join(said)}) at {self.requests.address.url}>"

    @cached_property
    def digest(self) -> str:
        """What names the program in orders."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def here(self) -> Program:
        """The same program in this process, for what a service is not asked."""
        from shardc.launcher.programs import program_of

        program = replace(self.local or program_of(self.data, self.name), config=self.config)
        mesh = Mesh(dict(self.sizes)) if self.sizes else None
        return program.annotate(dict(self.specs), mesh=mesh) if self.specs or mesh is not None else program

    def order(self, kind: type[O], **fields: Any) -> O:
        """An order of ``kind`` for this program."""
        name = "".join(c if c.isprintable() else "?" for c in self.name)[-200:]
        terms = {**settings_terms(self.config), **fields}
        return kind(program=self.digest, name=name, mesh=dict(self.sizes), annotations=dict(self.specs), **terms)

    def carry_out(self, order: Order, programs: Mapping[str, bytes] | None = None, hear: Hear | None = None) -> Result:
        """What ``order``, one of this program's (and of ``programs``, by digest), makes at the service."""
        result = self.requests.carry_out(order, programs or {self.digest: self.data}, hear)
        repeat_warnings(result)
        return result

    @cached_property
    def facts(self) -> ProgramFacts:
        """Names, shapes and annotations, as the service reads them."""
        from shardc.launcher.service.results import ProgramFacts

        return self.carry_out(self.order(InspectOrder)).value(ProgramFacts, "program.json")

    @property
    def mesh(self) -> Mesh | None:
        """The device mesh, None before one is known."""
        sizes = self.facts.mesh
        return Mesh(dict(sizes)) if sizes else None

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names that `annotate` takes, by parameter."""
        return tuple(p.name for p in self.facts.parameters)

    def annotate(self, annotations: Mapping[str, Any] | None = None, mesh: Any = None) -> RemoteProgram:
        """As `Program.annotate`; that names, axes and dimensions are there shows at the service."""
        specs = {name: spec_text(spec) for name, spec in (annotations or {}).items()}
        sizes = self.sizes if mesh is None else mesh_sizes(as_mesh(mesh))
        return replace(self, specs={**self.specs, **specs}, sizes=sizes)

    def scheduled(
        self,
        *,
        overlap: str | None = None,
        machine: str | Path | None = None,
        measured: str | Path | None = None,
    ) -> RemoteProgram:
        """As `Program.scheduled`."""
        if overlap is not None and overlap not in OVERLAPS:
            raise InputError(f"overlap is {overlap!r}", fix=f"use one of {', '.join(OVERLAPS)}")
        changes: dict[str, Any] = {
            "overlap": overlap,
            "machine": None if machine is None else str(machine),
            "profile": None if measured is None else Path(measured),
        }
        changes = {k: v for k, v in changes.items() if v is not None}
        return replace(self, config=replace(self.config, **changes)) if changes else self

    def tuned(self, seconds: float) -> RemoteProgram:
        """Refused: tuning is for the computer that it runs on."""
        raise UnsupportedError(
            f"tuning (for {seconds:g} s) at a compile service: it measures the computer that it runs on",
            fix="leave it out, or compile here",
        )

    def propagate(self, *, conservative: bool = False) -> RemotePropagated:
        """As `Program.propagate`."""
        return RemotePropagated(self, conservative)

    def partition(self, **options: Any) -> RemotePartitioned:
        """As `Program.partition`."""
        return self.propagate().partition(**options)

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mesh: Any = None,
        mapping: str | Mapping[str, str] | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """As `Program.simulate`, also of a program that XLA has scheduled."""
        program = self if mesh is None else self.annotate(mesh=mesh)
        return program.partition(machine=machine).simulate(machine, mapping=mapping, ignore_memory=ignore_memory)

    def compile(self, target: str = "cpu", *, tune: float | None = None) -> Compiled:
        """As `Program.compile`, for this computer's processor."""
        program = self if tune is None else self.tuned(tune)
        return program.partition().compile(target)


@dataclass(frozen=True)
class RemotePropagated:
    """Every value has a sharding."""

    program: RemoteProgram
    conservative: bool = False

    def __repr__(self) -> str:
        return f"<RemotePropagated of {self.program!r}>"

    def explain(self, value: str) -> list[str]:
        """Where the sharding of the value called ``value`` comes from."""
        return self.stories([value])[value]

    def stories(self, values: Sequence[str]) -> Mapping[str, list[str]]:
        """`explain` by value."""
        order = self.program.order(ExplainOrder, conservative=self.conservative, values=tuple(values))
        told: Mapping[str, list[str]] = self.program.carry_out(order).json("stories.json")
        return told

    def partition(
        self,
        *,
        machine: str | Path | None = None,
        windowed_einsum: Choice = "auto",
        pipelined_loops: Choice = "auto",
        decomposed_rings: bool = False,
    ) -> RemotePartitioned:
        """As `Propagated.partition`."""
        from shardc.partitioner.options import PartitionOptions

        PartitionOptions(windowed_einsum, pipelined_loops, decomposed_rings)  # words are checked there
        machine = machine or self.program.config.machine or None
        asked: dict[str, Any] = {"machine": machine, "decomposed_rings": decomposed_rings}
        asked |= {"windowed_einsum": windowed_einsum, "pipelined_loops": pipelined_loops}
        return RemotePartitioned(self, MappingProxyType(asked))


@dataclass(frozen=True)
class RemotePartitioned:
    """The per-device program; ``options`` are those of `Propagated.partition`."""

    propagated: RemotePropagated
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        said = ", ".join(
            f"{name}={value}" for name, value in self.options.items() if value not in (None, "auto", False)
        )
        return f"<RemotePartitioned of {self.program!r}{f' with {said}' if said else ''}>"

    @property
    def program(self) -> RemoteProgram:
        return self.propagated.program

    def order(self, kind: type[O], machine: str | Path | None = None, **fields: Any) -> O:
        """An order of ``kind`` that partitions so; ``machine``, if any, is the one that is asked about."""
        ours = self.options["machine"]
        if ours and machine and str(ours) != str(machine):
            raise UnsupportedError(
                f"partitioned for {ours} and asked about {machine}: an order has one machine",
                fix="partition without a machine, or for the same",
            )
        terms = {k: v for k, v in self.options.items() if k != "machine"}
        terms |= {**machine_terms(ours or machine), "partitioned_for": "machine" if ours else "bytes"}
        return self.program.order(kind, conservative=self.propagated.conservative, **terms, **fields)

    @cached_property
    def result(self) -> Result:
        """The files of the partitioned program."""
        return self.program.carry_out(self.order(PartitionOrder))

    @property
    def num_devices(self) -> int:
        return int(self.report()["devices"])

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage, at the service."""
        seconds: Mapping[str, float] = self.result.facts.get("seconds", {})
        return seconds

    def as_text(self) -> str:
        """HLO text that XLA compiles and runs as it is."""
        return self.result.file("partitioned.hlo").decode()

    @cached_property
    def _report(self) -> dict[str, Any]:
        told: dict[str, Any] = self.result.json("report.json")
        return told

    def report(self) -> dict[str, Any]:
        """As `Partitioned.report`."""
        return dict(self._report)

    def explain(self) -> list[str]:
        """One entry per collective: what it moves, for which value and source line, and why."""
        from shardc.launcher.stages import explain_collective

        return [explain_collective(c) for c in self._report["collectives"]]

    def explanation(
        self,
        machine: str | Path | None = None,
        *,
        remedies: int = 0,
        tries: int = 12,
        seconds: float = 30.0,
        thresholds: Mapping[str, float] | None = None,
    ) -> Explanation:
        """As `Partitioned.explanation`."""
        from shardc.launcher.explain.explanation import Explanation

        terms = {"remedies": remedies, "tries": tries, "seconds": float(seconds), "thresholds": dict(thresholds or {})}
        result = self.program.carry_out(self.order(ExplainOrder, machine, **terms))
        return replace(result.value(Explanation, "explanation.json"), machine=str(machine or ""))

    def difference(self, other: RemotePartitioned, machine: str | Path | None = None) -> Difference:
        """What changes from this one to ``other``: the same program with other annotations."""
        from shardc.launcher.explain.explanation import Difference

        mine, others = self.program, other.program
        if mine.data != others.data or self.options != other.options:
            raise UnsupportedError("two different programs are compared here only", fix="load them without a service")
        terms = {"other_annotations": dict(others.specs), "other_mesh": dict(others.sizes), "remedies": 0}
        return mine.carry_out(self.order(ExplainOrder, machine, **terms)).value(Difference, "difference.json")

    def write_report(
        self,
        path: str | Path,
        *,
        machine: str | Path | None = None,
        mapping: str | Mapping[str, str] | None = None,
        remedies: int = 0,
        seconds: float = 30.0,
    ) -> None:
        """As `Partitioned.write_report`."""
        from shardc.launcher.atomic import write_text
        from shardc.launcher.report.write import report_target

        target = report_target(path)
        terms = {"mapping": mapping_text(mapping), "remedies": remedies, "seconds": float(seconds)}
        result = self.program.carry_out(self.order(ReportOrder, machine, **terms))
        write_text(target, result.file("report.html").decode())

    def simulate(
        self,
        machine: str | Path | None = None,
        *,
        mapping: str | Mapping[str, str] | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """As `Partitioned.simulate`."""
        from shardc.launcher.simulate.simulation import Simulation

        if not (machine or self.options["machine"]):
            raise InputError("no machine to simulate on", fix="name one, such as h100-dgx")
        terms = {"mapping": mapping_text(mapping), "ignore_memory": ignore_memory, "page": False}
        return self.program.carry_out(self.order(SimulateOrder, machine, **terms)).value(Simulation, "simulation.json")

    def compile(self, target: str = "cpu", *, profile: bool = False, tune: float | None = None) -> Compiled:
        """As `Partitioned.compile`: made at the service for this computer's processor, verified, and loaded here.

        Raises `EnvironmentProblem` where another version of shardc runs there.
        """
        from shardc.launcher.load import content_kind
        from shardc.native.target import host_target

        check_target(target)
        program = self.program if tune is None else self.program.tuned(tune)
        if reason := need_none_of(program.config):
            raise UnsupportedError(f"a compile service is of no use: {reason}", fix="compile here")
        start = time.perf_counter()
        order = self.compile_order(target, host_target(), profile=profile, page=False)
        executable, result = compiled_by(program.requests, order, {program.digest: program.data})
        repeat_warnings(result)
        seconds = {**result.facts.get("seconds", {}), "service": time.perf_counter() - start}
        # Only functions have pytrees; other programs are not read here for that.
        known = program.local is not None or content_kind(program.data) == "exported"
        return Compiled(executable, program.here.jax if known else None, program.config, seconds, lambda: self.here)

    def compile_order(self, target: str, machine: Target, **fields: Any) -> CompileOrder:
        """The order for an executable for ``target`` (a GPU of this computer is its kind) and a processor."""
        kind = name_of(str(find_target(target))) if target == "cuda" else target
        return self.order(CompileOrder, target=kind, cpu=cpu_of(machine), **fields)

    @cached_property
    def here(self) -> Partitioned:
        """The same stage, made in this process."""
        return self.program.here.propagate(conservative=self.propagated.conservative).partition(**self.options)

    def memory_analysis(self) -> dict[str, int]:
        """As `Partitioned.memory_analysis`."""
        return self.compile().memory_analysis()

    def memory_timeline(self) -> MemoryTimeline:
        """As `Partitioned.memory_timeline`; the program is partitioned here for it."""
        return self.compile().memory_timeline()

    def memory_picture(self, path: str | Path) -> None:
        """As `Partitioned.memory_picture`."""
        self.compile().memory_picture(path)

    def compile_ahead(
        self, folder: str | Path, *, name: str = "", cpu: str = "", system: str = ""
    ) -> tuple[AheadProgram, list[Path]]:
        """As `Partitioned.compile_ahead`; the object is compiled at the service, files are written here."""
        from shardc.compiler.ahead.program import AheadProgram, identifier
        from shardc.compiler.serialize import read_bytes
        from shardc.launcher.ahead import ahead_target, write_ahead
        from shardc.launcher.service.results import AheadFacts
        from shardc.native.target import Target

        if name and identifier(name) != name:
            raise InputError(
                f"{name!r} is not a name in C", where="the program's name", fix=f"{identifier(name)!r} is one"
            )
        order = self.compile_order("cpu", ahead_target(cpu, system), ahead=True, symbol=name, page=False)
        result = self.program.carry_out(order)
        facts = result.value(AheadFacts, "ahead.json")
        target = Target(facts.target.triple, facts.target.cpu, facts.target.features)
        program = AheadProgram(read_bytes(result.file(FILE), FILE), target, facts.name)
        return program, write_ahead(program, folder)
