"""Orders: what a client asks of the service, as plain data with limits in the types.

An order names its program by content (the SHA-256 of the uploaded bytes) and says everything else that its result
depends on; so equal orders have equal results, and `order_key` names both. No field is a path: machines are names or
the text of a description, measured times are text. The same classes are the description of the HTTP interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "ORDERS",
    "CompileOrder",
    "Cpu",
    "ExplainOrder",
    "InspectOrder",
    "Order",
    "PartitionOrder",
    "ReportOrder",
    "Settings",
    "SimulateOrder",
    "SweepOrder",
    "SweepSet",
]

Choice = Literal["never", "auto", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The client's own settings that generated code and schedules depend on, see `shardc.hlo.config.Config`."""

    overlap: Choice = "auto"
    overlap_memory: float = 1.1
    spare_cores: bool = False
    tf32: bool = False
    deterministic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What all orders say.

    ``program`` is the SHA-256 of the uploaded bytes in hexadecimal, ``name`` what errors call it (never opened).
    ``mesh`` are axes and sizes, outermost first, and ``annotations`` specs by name, both as on the command line.
    ``machine`` is a name with or without devices (``h100-dgx:64``), or empty; ``machine_text`` a description (TOML)
    in its place. ``measured`` is the text of a file of measured times.
    """

    program: str
    name: str = "program"
    mesh: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conservative: bool = False
    machine: str = ""
    machine_text: str = ""
    measured: str = ""
    windowed_einsum: Choice = "auto"
    pipelined_loops: Choice = "auto"
    decomposed_rings: bool = False
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOrder(Order):
    """What is in a program: names that can be annotated, shapes, mesh, annotations. Makes ``program.json``."""

    kind: Literal["inspect"] = "inspect"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOrder(Order):
    """The per-device program. Makes ``report.json``, ``partitioned.hlo``, ``stages.json``."""

    kind: Literal["partition"] = "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """An LLVM target, see `shardc.native.target.Target`."""

    triple: str
    cpu: str
    features: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOrder(Order):
    """An executable. Makes ``executable.shardc``, ``report.json``, ``partitioned.hlo`` and, with ``page``,
    ``report.html``.

    ``target`` is ``cpu``, ``cuda-emulated`` or a kind of GPU such as ``cuda:sm_90``; ``cpu`` the processor for what
    processors do (None: like the server's). ``ahead``: as `shardc compile` has it, code that links without Python.
    """

    kind: Literal["compile"] = "compile"
    target: str = "cpu"
    cpu: Cpu | None = None
    ahead: bool = False
    profile: bool = False
    page: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOrder(Order):
    """A predicted step. Makes ``simulation.json``, ``trace.json``, ``report.json``, ``partitioned.hlo`` and, with
    ``page``, ``report.html``; needs a machine."""

    kind: Literal["simulate"] = "simulate"
    mapping: str = ""
    ignore_memory: bool = False
    page: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOrder(Order):
    """Why collectives are there, or with ``values`` where their shardings come from; with ``other_annotations``
    (and ``other_mesh``) what changes from these annotations to those. Makes ``explanation.json`` (or
    ``stories.json``, ``difference.json``), ``report.json``."""

    kind: Literal["explain"] = "explain"
    remedies: int = 3
    tries: int = 12
    seconds: float = 30.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    values: tuple[str, ...] = ()
    other_annotations: Mapping[str, str] | None = None
    other_mesh: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOrder(Order):
    """One page about everything. Makes ``report.html``, ``report.json`` and, with a machine, ``simulation.json``."""

    kind: Literal["report"] = "report"
    mapping: str = ""
    remedies: int = 0
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSet:
    """A named set of annotations, and limits for the sizes of its axes."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOrder(Order):
    """Meshes and sets of annotations ranked by predicted time. Makes ``sweep.json``; needs a machine.

    ``programs`` are those for further numbers of devices (weak scaling), in the order of ``devices``.
    """

    kind: Literal["sweep"] = "sweep"
    devices: tuple[int, ...] = ()
    programs: tuple[str, ...] = ()
    meshes: bool = True
    axes: Mapping[str, Any] = field(default_factory=dict)
    sets: tuple[SweepSet, ...] = ()
    mapping: str = ""
    limit: int = 64
    refine: int = 2
    uneven: bool = False
    ignore_memory: bool = False


#: By kind.
ORDERS: Mapping[str, type[Order]] = {
    "inspect": InspectOrder,
    "partition": PartitionOrder,
    "compile": CompileOrder,
    "simulate": SimulateOrder,
    "explain": ExplainOrder,
    "report": ReportOrder,
    "sweep": SweepOrder,
}
