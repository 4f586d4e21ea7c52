"""The contents of ``program.json``, ``stages.json`` and ``ahead.json``, which no other class describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.mesh import Mesh
from shardc.service.orders import Cpu

__all__ = ["AheadFacts", "ProgramFacts", "StagesFacts", "ValueFacts"]


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """A value by the name that annotations take; ``spec`` as ``--annotate`` has it, empty where there is none."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    spec: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """``program.json``: a program as it was read and annotated, and as propagation sees it: where shardings name no
    axes, ``mesh`` has axes that were made up for them. It is empty where none is known yet. ``values`` are those inside
    that can be annotated, but for the last ``left_out``. ``partitioned`` and ``scheduled`` say that it came so.
    ``own_mesh`` and ``arg_names`` are those of `Program`."""

    name: str
    kind: str
    devices: int
    mesh: Mapping[str, int]
    parameters: tuple[ValueFacts, ...]
    results: tuple[ValueFacts, ...]
    values: tuple[ValueFacts, ...]
    left_out: int
    partitioned: bool
    scheduled: bool
    own_mesh: Mesh | None
    arg_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagesFacts:
    """``stages.json``: what is known of a partitioned program besides its text and its report.

    ``options`` are those of `Propagated.partition`; ``one_device`` is `Program.for_one_device`.
    """

    name: str
    devices: int
    mesh: Mapping[str, int] | None
    arg_names: tuple[str, ...]
    options: Mapping[str, Any]
    one_device: bool


@dataclass(frozen=True, slots=True)
class AheadFacts:
    """``ahead.json``: what C calls the program of ``executable.shardc``, and the processor it is for."""

    name: str
    target: Cpu
