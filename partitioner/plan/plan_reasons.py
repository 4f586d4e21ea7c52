"""What a plan says of itself: of each decided value what was wanted, what was chosen, and what the next best costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import bytes_text, seconds_text
from shardc.partitioner.plan.judge import Judgement
from shardc.sharding.notations.partition_spec import dims_text

__all__ = ["DecidedRole", "LayoutDecision", "MemoryRow", "PlanReasons", "layout_words"]

#: What a decided value is: what a loop carries has one layout before, in and behind the loop.
DecidedRole = Literal["argument", "result", "loop", "value"]


@dataclass(frozen=True, slots=True)
class LayoutDecision:
    """The layout of a value, or of ``names`` equal ones (of equal layers) that were decided together.

    ``names`` are the user's for arguments and results, else the instructions' in the program whose calls are opened;
    ``leaf`` is the array of a tuple. ``wanted`` is what propagation says, ``chosen`` what the plan says.
    ``wanted_more`` is what the plan costs more with the wanted layout here, all else chosen anew as far as that was
    looked for (None: not allowed, or not known), ``next_more`` the same for the best other layout, ``next_best``.
    ``times`` is how often one of them is made. ``binds`` are the rows of `PlanReasons.rows` that it has bytes in.
    """

    names: tuple[str, ...]
    role: DecidedRole
    leaf: int
    opcode: str
    source: str
    op_name: str
    shape: Shape
    wanted: Sharding
    chosen: Sharding
    wanted_more: float | None = None
    next_best: Sharding | None = None
    next_more: float | None = None
    times: float = 1.0
    binds: tuple[int, ...] = ()

    @property
    def moved(self) -> bool:
        """Does it lie otherwise than propagation wants?"""
        return self.chosen.as_layout != self.wanted.as_layout

    @property
    def local_bytes(self) -> int:
        """What one of them takes on a device."""
        return self.bytes_in(self.chosen)

    def bytes_in(self, sharding: Sharding) -> int:
        """What one of them would take on a device."""
        return self.shape.with_dims(sharding.local_dims(self.shape.dims)).nbytes

    def to_dict(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("wanted", "chosen", "next_best"):
            told[name] = "" if told[name] is None else str(told[name])
        told |= {"names": list(self.names), "binds": list(self.binds), "shape": str(self.shape)}
        return {**told, "local_bytes": self.local_bytes, "wanted_local_bytes": self.bytes_in(self.wanted)}


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A place of the program, ``at`` an instruction, where memory limits the plan: ``usage`` of ``limit`` bytes.

    A byte more there would save ``saves`` of the plan's cost. ``heaviest`` are the values with most bytes there.
    """

    at: str
    source: str
    usage: float
    limit: float
    saves: float
    heaviest: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**told, "heaviest": [list(x) for x in self.heaviest]}


@dataclass(frozen=True)
class PlanReasons:
    """A plan of layouts over ``mesh`` beside what propagation gives, of one device and one step.

    ``unit`` is that of ``cost`` (seconds on ``machine``, or bytes sent), ``wanted_cost`` the cost with every layout as
    propagated, ``bound`` what no plan within the memory goes below (inf: there is none); all by the models that plans
    are made with. ``judged`` and ``judged_wanted`` are what the whole per-device programs come to. ``taken`` is false
    where the propagated layouts stay, ``why`` then says why. ``limit``: bytes per device. ``decisions`` and the bytes
    in use, ``usage`` and ``wanted_usage``, are in program order.
    """

    mesh: Mesh
    machine: str
    unit: Literal["s", "B"]
    taken: bool
    why: str
    cost: float
    wanted_cost: float
    bound: float
    method: str
    judged: Judgement
    judged_wanted: Judgement
    limit: float | None
    decisions: tuple[LayoutDecision, ...]
    rows: tuple[MemoryRow, ...] = ()
    usage: tuple[float, ...] = ()
    wanted_usage: tuple[float, ...] = ()

    @property
    def gap(self) -> float | None:
        """How much of the cost is not proven to be needed, from 0 on: 0.01 is one percent; None without a bound, and
        where no plan is within the memory."""
        if not math.isfinite(self.bound):
            return None
        return max(0.0, self.cost - self.bound) / abs(self.cost) if self.cost else 0.0

    @property
    def proof(self) -> str:
        """What is proven of other plans, in words."""
        if self.gap is None:
            memory = "the memory" if self.limit is None else bytes_text(self.limit)
            return f"{f'no plan is within {memory}' if self.bound > 0 else 'nothing is proven'} ({self.method})"
        return f"no plan is below {self.cost_text(self.bound)} (gap {self.gap:.2%}, {self.method})"

    @cached_property
    def moved(self) -> tuple[LayoutDecision, ...]:
        """Decisions that differ from what propagation wants."""
        return tuple(d for d in self.decisions if d.moved)

    def most_telling(self, most: int) -> tuple[LayoutDecision, ...]:
        """So many decisions at most, in program order: first those that differ from what was wanted, by what that
        saves, then those whose next best costs most, then the largest; one of each kind before a second of any."""
        ranked = sorted(enumerate(self.decisions), key=lambda x: _rank(x[1]))
        seen: Counter[object] = Counter()
        turns: list[tuple[int, int]] = []
        for place, (_, d) in enumerate(ranked):
            kind = (d.role, d.shape, d.wanted.as_layout, d.chosen.as_layout)
            turns.append((seen[kind], place))
            seen[kind] += 1
        numbers = sorted(ranked[place][0] for _, place in sorted(turns)[:most])
        return tuple(self.decisions[n] for n in numbers)

    @property
    def cost_text(self) -> Callable[[float], str]:
        """Writes a cost with its unit."""
        return bytes_text if self.unit == "B" else seconds_text

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; memory over the program is left to pictures."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("usage", "wanted_usage")}
        for name in ("judged", "judged_wanted"):
            judged: Judgement = told[name]
            told[name] = {"cost": judged.cost[0] if judged.cost else 0.0, "peak_bytes": judged.peak}
        for name in ("cost", "wanted_cost", "bound"):
            told[name] = told[name] if math.isfinite(told[name]) else None
        told["decisions"] = [d.to_dict() for d in self.decisions]
        return {**told, "mesh": self.mesh.shape, "gap": self.gap, "rows": [r.to_dict() for r in self.rows]}


def _rank(d: LayoutDecision) -> tuple[float, ...]:
    """Smaller for what tells more."""
    return (-d.moved, -(d.wanted_more or 0.0), -(d.next_more or 0.0), -d.local_bytes * len(d.names))


def layout_words(sharding: Sharding) -> str:
    """``data,None``, as annotations say it; ``whole`` for a value that every device has; partial values besides."""
    text = dims_text(sharding.dims) if any(d.axes for d in sharding.dims) else "whole"
    if sharding.unreduced:
        text += f", partial {sharding.reduction} over {'+'.join(map(str, sharding.unreduced))}"
    return text
