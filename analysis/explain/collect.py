"""The collectives of a partitioned program with their causes, equal ones (of equal layers) together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardc.analysis.explain.chains import layout_text
from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.partitioner.strategy.cause import Cause, causes_of

if TYPE_CHECKING:
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["CollectiveGroup", "collect_collectives", "key_of", "local_bytes"]

#: Prices one execution of a collective in seconds.
Price = Callable[[Instruction], float]


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """Equal collectives: their rows of the report, the instructions, and the causes of each, the largest first."""

    rows: tuple[Mapping[str, Any], ...]
    instructions: tuple[Instruction, ...]
    causes: tuple[tuple[Cause, ...], ...]
    seconds: float | None

    @property
    def wire_bytes(self) -> float:
        """What a device sends in all of them."""
        return float(sum(row["wire_bytes"] for row in self.rows))

    @property
    def keys(self) -> frozenset[tuple[object, ...]]:
        """What they are about, each of those that were joined; nothing for collectives of the program itself."""
        return frozenset(key_of(row, c) for row, causes in zip(self.rows, self.causes, strict=True) for c in causes)

    @property
    def cost(self) -> tuple[float, float]:
        """What they are ordered by."""
        return (self.seconds if self.seconds is not None else self.wire_bytes, self.wire_bytes)


def collect_collectives(partitioned: PartitionedProgram, price: Price | None = None) -> list[CollectiveGroup]:
    """All collectives, the most costly first; ``price`` gives the seconds of one execution."""
    module = partitioned.module
    runs = count_executions(module).count
    executed = [i for c in module.computations if c in runs for i in c if i.opcode in COLLECTIVES]
    alike: dict[object, list[tuple[Mapping[str, Any], Instruction, tuple[Cause, ...]]]] = {}
    for row, instruction in zip(partitioned.facts["collectives"], executed, strict=True):
        causes = sorted(causes_of(instruction.origin), key=lambda c: -local_bytes(c))
        alike.setdefault(_signature(row, causes), []).append((row, instruction, tuple(causes)))
    groups = []
    for members in alike.values():
        rows, instructions, causes_ = zip(*members, strict=True)
        seconds = None if price is None else sum(price(i) * r["count"] for r, i, _ in members)
        groups.append(CollectiveGroup(rows, instructions, causes_, seconds))
    return sorted(groups, key=lambda g: (-g.cost[0], -g.cost[1], g.rows[0]["name"]))


def local_bytes(cause: Cause) -> int:
    """Bytes of a device's part of the moved value, as it lies before."""
    dims = cause.table.local_dims(cause.before, cause.shape.dims)
    return cause.shape.with_dims(dims).nbytes


def key_of(row: Mapping[str, Any], cause: Cause) -> tuple[object, ...]:
    """What a collective is about, the same in a program with other annotations."""
    return (row["op"], cause.value if cause.operand is None else cause.operand.name)


def _signature(row: Mapping[str, Any], causes: list[Cause]) -> tuple[object, ...]:
    """Equal for collectives of equal layers: all but numbers in names."""
    return (
        row["op"],
        tuple(row["axes"]),
        row["count"],
        row["payload_bytes"],
        row["source"],
        _without_numbers(row["op_name"]),
        tuple((layout_text(c.table, c.before), layout_text(c.table, c.after), str(c.shape)) for c in causes),
        tuple("" if c.asked is None else c.asked.op.opcode for c in causes),
    )


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)
