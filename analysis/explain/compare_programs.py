"""What a partitioned program costs: the figures by which annotations are compared."""

from __future__ import annotations

from shardc.analysis.device_memory import with_memory
from shardc.analysis.explain.collect import Price
from shardc.analysis.explain.explanation import ProgramTotals
from shardc.analysis.simulate.simulate_program import simulate_partitioned
from shardc.costs.machines.machine import load_machine
from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.mapping import place
from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram

__all__ = ["ProgramComparer"]

#: How much more arithmetic a program may do and still count as the same work.
_MORE_WORK = 1.02
#: Savings below this share of the whole are noise.
_NOISE = 1e-3


class ProgramComparer:
    """Partitions programs and weighs them, on a ``machine`` or by bytes; equal annotations are partitioned once."""

    def __init__(self, base: PartitionedProgram, machine: str | None = None) -> None:
        self.base = base
        self.machine = machine
        #: Of a device, for the program's main type; known on a machine once totals were asked for.
        self.peak_flops = 0.0
        self._known: dict[tuple[tuple[str, str], ...], PartitionedProgram | None] = {}
        self._by_layouts: dict[object, PartitionedProgram] = {_layouts(base.propagated): base}
        self._totals: dict[int, tuple[PartitionedProgram, ProgramTotals]] = {}

    def price(self) -> Price | None:
        """What one execution of a collective takes, alone; None without a machine."""
        mesh = self.base.module.mesh
        if self.machine is None or mesh is None:
            return None
        placement = place(load_machine(self.machine), mesh)

        def price(op: Instruction) -> float:
            groups = op.attrs.get("replica_groups", op.attrs.get("source_target_pairs"))
            return collective_cost(placement, op.opcode, op.shape.nbytes, groups).seconds

        return price

    def totals(self, partitioned: PartitionedProgram) -> ProgramTotals:
        """What the whole program costs."""
        known = self._totals.get(id(partitioned))
        if known is not None:
            return known[1]
        report = partitioned.facts
        if self.machine is not None:
            step = simulate_partitioned(partitioned, self.machine, ignore_memory=True)
            seconds, peak, self.peak_flops = step.step_seconds, step.peak_bytes, step.peak_flops
        else:
            seconds, peak = None, with_memory(report, partitioned)["peak_bytes"]
        executed = sum(c["count"] for c in report["collectives"])
        made = ProgramTotals(float(report["wire_bytes"]), report["flops"], peak, executed, seconds)
        self._totals[id(partitioned)] = (partitioned, made)
        return made

    def with_annotations(
        self, program: SourceProgram, changes: tuple[tuple[str, str], ...]
    ) -> PartitionedProgram | None:
        """The program partitioned with other annotations, in the same way; None where it refuses them."""
        if changes not in self._known:
            try:
                self._known[changes] = self._partitioned(program.annotate(dict(changes)))
            except ShardcError:
                self._known[changes] = None
        return self._known[changes]

    def _partitioned(self, program: SourceProgram) -> PartitionedProgram:
        """Partitioned as the base was; what propagates alike is partitioned once."""
        propagated = program.propagate(conservative=self.base.propagated.conservative)
        key = _layouts(propagated)
        if key not in self._by_layouts:
            self._by_layouts[key] = propagated.partition(**self.base.options)
        return self._by_layouts[key]

    def better(self, after: PartitionedProgram) -> bool:
        """Whether ``after`` takes less time (if unknown: sends fewer bytes) than the base, with no more arithmetic."""
        old, new = self.totals(self.base), self.totals(after)
        if new.flops > old.flops * _MORE_WORK:
            return False
        if old.seconds is not None and new.seconds is not None:
            return new.seconds < old.seconds * (1 - _NOISE)
        return new.wire_bytes < old.wire_bytes * (1 - _NOISE)


def _layouts(propagated: PropagatedProgram) -> object:
    """How every value of a program lies: all that partitioning depends on, besides the program."""
    history = propagated.provenance
    if history is None:
        return id(propagated)
    told = {id(s): s.as_layout for s in history.shardings}
    return tuple(told[id(s)] for s in history.shardings)
