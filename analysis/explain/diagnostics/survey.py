"""What all warnings look at: the two programs, who varies along which axes, how often what runs, and thresholds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardc.analysis.explain.candidates import AnnotationCandidate, AnnotationCandidates
from shardc.analysis.explain.collect import CollectiveGroup
from shardc.analysis.explain.compare_programs import ProgramComparer
from shardc.analysis.explain.explanation import ProgramTotals, Remedy
from shardc.analysis.explain.remedies import RemedySearch
from shardc.costs.kernels.trips import count_executions
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Computation, Instruction, users_of
from shardc.partitioner.optimise.varying import Axes, varying

if TYPE_CHECKING:
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["PRODUCTS", "Survey", "Thresholds", "thresholds_of"]

#: Operations that are worth a warning when they are repeated.
PRODUCTS = frozenset(("dot", "convolution"))


#: Thresholds that are shares of a whole, hence at most 1.
_OF_A_WHOLE = frozenset(("memory", "wire", "work"))


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which share on something is worth a warning: of a device's memory, of the bytes on the wire, of padded to
    real elements, of the arithmetic that several devices do alike."""

    memory: float = 0.05
    wire: float = 0.05
    padding: float = 0.1
    work: float = 0.2


def thresholds_of(shares: Mapping[str, float]) -> Thresholds:
    """The defaults with some shares changed. Raises `InputError` for unknown names and for what is no share."""
    known = [f.name for f in fields(Thresholds)]
    for name, share in shares.items():
        if name not in known:
            raise InputError(f"unknown threshold {name!r}", fix=f"use one of {', '.join(known)}")
        if not 0 <= share < math.inf or (share > 1 and name in _OF_A_WHOLE):
            raise InputError(f"the threshold {name} is {share}", fix="give a fraction, such as 0.05")
    return replace(Thresholds(), **shares)


@dataclass(frozen=True)
class Survey:
    """A partitioned program with what is known of it.

    ``candidates`` are None where nothing was propagated, ``remedies`` where none are wanted.
    """

    partitioned: PartitionedProgram
    groups: Sequence[CollectiveGroup]
    comparer: ProgramComparer
    thresholds: Thresholds
    candidates: AnnotationCandidates | None
    remedies: RemedySearch | None

    @property
    def totals(self) -> ProgramTotals:
        return self.comparer.totals(self.partitioned)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Mesh axes that split something into more than one part."""
        mesh = self.partitioned.module.mesh
        return {name: n for name, n in mesh.axes if n > 1} if mesh is not None else {}

    @cached_property
    def axes(self) -> dict[Instruction, Axes]:
        """Along which axes any leaf of a value differs between devices."""
        module = self.partitioned.module
        if module.mesh is None:
            return {}
        return {i: frozenset().union(*leaves) for i, leaves in varying(module).items()}

    @cached_property
    def counts(self) -> dict[Computation, int]:
        return count_executions(self.partitioned.module).count

    @cached_property
    def home(self) -> dict[Instruction, Computation]:
        """The computation that an instruction stands in."""
        return {i: c for c in self.counts for i in c}

    @cached_property
    def users(self) -> dict[Computation, dict[Instruction, list[Instruction]]]:
        return {c: users_of(c) for c in self.counts}

    @cached_property
    def products(self) -> list[tuple[Instruction, int]]:
        """Products (or, in a program without any, all that computes) with their operations per step."""
        found = [(i, self.counts[c] * instruction_flops(i)) for c in self.counts for i in c]
        heavy = [(i, n) for i, n in found if i.opcode in PRODUCTS]
        return heavy or [(i, n) for i, n in found if n]

    def wasted_share(self, flops: int, positions: int) -> float:
        """What of the step is lost when so many positions do the same work: of its time on a machine, else of its
        arithmetic.

        On a machine small work is done again on purpose, where sending results would take longer.
        """
        seconds, peak = self.totals.seconds, self.comparer.peak_flops
        if seconds is not None and peak:
            return flops * (1 - 1 / positions) / peak / seconds
        return flops / max(sum(n for _, n in self.products), 1)

    def matters(self, *groups: CollectiveGroup) -> bool:
        """Whether collectives take enough of the step's time, or without a machine of the bytes on the wire."""
        if self.totals.seconds is not None:
            return sum(g.seconds or 0.0 for g in groups) >= self.thresholds.wire * self.totals.seconds
        return sum(g.wire_bytes for g in groups) >= self.thresholds.wire * self.totals.wire_bytes

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """The report's rows of parameters."""
        return list(self.partitioned.facts["parameters"])

    def best(
        self,
        candidates: Sequence[AnnotationCandidate],
        accept: Callable[[ProgramTotals], bool],
        worth: Callable[[ProgramTotals], object],
    ) -> Remedy | None:
        """See `RemedySearch.best`; None if none is wanted."""
        if self.remedies is None:
            return None
        return self.remedies.best(candidates, accept, worth)
