"""Stages at a compile service: `RemoteProgram` and `RemotePropagated`, and `RemotePartitioned` in a file of its own,
mirror those of `shardc.stages.stages`, with the same methods; what they give is made at the service and rebuilt here.

Nothing is asked before something is wanted: a partitioned program that is only simulated is one order. What no order
asks for (texts of the program before it is partitioned) is made here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from shardc.costs.machines.machine import GivenMapping, placed_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.launcher.arrays.meshes import as_mesh
from shardc.launcher.driver.compiled import Compiled
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.options import DEFAULT_PLAN, Choice, Plan
from shardc.partitioner.plan.judge import Judge
from shardc.partitioner.program import interface_names, schedule_config
from shardc.service.bounds import LONGEST_LINE
from shardc.service.client.executables import repeat_warnings
from shardc.service.client.partitioned import RemotePartitioned
from shardc.service.client.requests import Hear, Requests, Result
from shardc.service.client.terms import mesh_sizes, settings_terms, spec_text
from shardc.service.orders import ExplainOrder, InspectOrder, Order

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.hlo.ir.custom_calls import CustomCall
    from shardc.hlo.ir.ir import Module
    from shardc.partitioner.program import PropagatedProgram, SourceProgram
    from shardc.service.results import ProgramFacts

__all__ = ["RemoteProgram", "RemotePropagated"]

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
    local: SourceProgram | None = None

    def __repr__(self) -> str:
        said = [f"{len(self.data)} bytes"] + [f"{name}={size}" for name, size in self.sizes.items()]
        said += [f"{name}: {spec}" for name, spec in self.specs.items()]
        return f"<RemoteProgram {self.name or 'of this process'} ({', '.join(said)}) at {self.requests.address.url}>"

    @cached_property
    def digest(self) -> str:
        """What names the program in orders."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def here(self) -> SourceProgram:
        """The same program in this process, for what a service is not asked."""
        from shardc.frontends.load import load_program

        program = replace(self.local or load_program(self.data, self.name), config=self.config)
        mesh = Mesh(dict(self.sizes)) if self.sizes else None
        return program.annotate(dict(self.specs), mesh=mesh) if self.specs or mesh is not None else program

    def order(self, kind: type[O], **fields: Any) -> O:
        """An order of ``kind`` for this program."""
        name = "".join(c if c.isprintable() else "?" for c in self.name)[-LONGEST_LINE:]
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
        from shardc.service.results import ProgramFacts

        return self.carry_out(self.order(InspectOrder)).value(ProgramFacts, "program.json")

    @property
    def mesh(self) -> Mesh | None:
        """The device mesh, None before one is known."""
        return self.facts.own_mesh

    @property
    def num_devices(self) -> int:
        """How many devices the program is for."""
        return self.facts.devices

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names that `annotate` takes, by parameter."""
        return self.facts.arg_names

    @property
    def for_one_device(self) -> bool:
        """As `Program.for_one_device`."""
        return self.here.for_one_device

    @property
    def module(self) -> Module:
        """The program, read here."""
        return self.here.module

    def as_text(self) -> str:
        """As `Program.as_text`, made here."""
        return self.here.as_text()

    def as_stablehlo(self) -> str:
        """As `Program.as_stablehlo`, made here."""
        return self.here.as_stablehlo()

    def with_custom_calls(self, custom_calls: Mapping[str, CustomCall]) -> RemoteProgram:
        """Refused: what such calls mean is known here only."""
        raise UnsupportedError(
            f"a compile service cannot use your custom calls ({', '.join(custom_calls)}): their functions exist "
            "only in this process",
            fix="give them to shardc.load(...) and compile on this machine",
        )

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
        return replace(self, config=schedule_config(self.config, overlap, machine, measured))

    def tuned(self, seconds: float) -> RemoteProgram:
        """Refused: tuning is for the computer that it runs on."""
        raise UnsupportedError(
            f"a compile service cannot tune (for {seconds:g} s): it would measure its own computer",
            fix="omit tune= (--tune), or compile on this machine, without a server",
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
        mapping: GivenMapping | None = None,
        ignore_memory: bool = False,
    ) -> Simulation:
        """As `Program.simulate`, also of a program that XLA has scheduled."""
        program, placed = self if mesh is None else self.annotate(mesh=mesh), placed_machine(machine, mapping)
        return program.partition(machine=placed).simulate(placed, mapping=mapping, ignore_memory=ignore_memory)

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

    @cached_property
    def here(self) -> PropagatedProgram:
        """The same stage, made in this process, for what a service is not asked."""
        return self.program.here.propagate(conservative=self.conservative)

    @property
    def module(self) -> Module:
        """The program with a sharding on every value, made here."""
        return self.here.module

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage, here."""
        return self.here.seconds

    def as_text(self) -> str:
        """As `Propagated.as_text`, made here."""
        return self.here.as_text()

    def as_stablehlo(self) -> str:
        """As `Propagated.as_stablehlo`, made here."""
        return self.here.as_stablehlo()

    def provenance_dict(self) -> dict[str, Any]:
        """As `Propagated.provenance_dict`, made here."""
        return self.here.provenance_dict()

    def explain(self, value: str | None = None) -> list[str]:
        """As `Propagated.explain`."""
        names = interface_names(self.program.module) if value is None else (value,)
        told = self.stories(names)
        return [line for name in names for line in told[name]]

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
        plan: Plan = DEFAULT_PLAN,
        memory: float | None = None,
        judge: Judge | None = None,
        interface: FreeInterface | None = None,
    ) -> RemotePartitioned:
        """As `Propagated.partition`; what judges a plan is the service's own."""
        from shardc.partitioner.options import PartitionOptions

        # Words are checked there.
        PartitionOptions(windowed_einsum, pipelined_loops, decomposed_rings, plan=plan, memory=memory)
        if judge is not None or interface is not None:
            what = "judge=" if judge is not None else "interface="
            raise UnsupportedError(
                f"a compile service cannot use {what}: an order cannot express it", fix="partition on this machine"
            )
        machine = machine or self.program.config.machine or None
        asked: dict[str, Any] = {"machine": machine, "decomposed_rings": decomposed_rings}
        asked |= {"windowed_einsum": windowed_einsum, "pipelined_loops": pipelined_loops}
        if plan != DEFAULT_PLAN or memory is not None:
            asked |= {"plan": plan, "memory": memory}
        return RemotePartitioned(self, MappingProxyType(asked))
