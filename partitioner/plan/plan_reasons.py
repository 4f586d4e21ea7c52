"""The reasons of a plan as data: for each decided value the propagated layout, the chosen layout, and the cost of the
next best."""

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
    """The layout of a value, or of several equal values (of equal layers) that were decided together. ``names`` are the
    user's for arguments and results, else those of instructions in the program with inlined calls; ``leaf`` is the
    index in a tuple. ``wanted`` is the propagated layout, ``chosen`` the planned one. ``wanted_more`` is the extra cost
    of the plan with the wanted layout here, with other layouts adapted by a search (None: not allowed, or not known).
    ``next_more`` is the same for ``next_best``, the best other layout. ``times`` is the number of executions. ``binds``
    are the rows of `PlanReasons.rows` that contain bytes of the value.
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
        """Whether the plan changes the propagated layout."""
        return self.chosen.as_layout != self.wanted.as_layout

    @property
    def local_bytes(self) -> int:
        """The bytes of one value on a device."""
        return self.bytes_in(self.chosen)

    def bytes_in(self, sharding: Sharding) -> int:
        """The bytes of one value on a device with this layout."""
        return self.shape.with_dims(sharding.local_dims(self.shape.dims)).nbytes

    def to_dict(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("wanted", "chosen", "next_best"):
            told[name] = "" if told[name] is None else str(told[name])
        told |= {"names": list(self.names), "binds": list(self.binds), "shape": str(self.shape)}
        return {**told, "local_bytes": self.local_bytes, "wanted_local_bytes": self.bytes_in(self.wanted)}


#: Steps of memory, the largest first.
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


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

    @property
    def more(self) -> tuple[str, float]:
        """A step of memory that is small beside the limit, and what so many bytes more would save."""
        unit, size = next(((u, n) for u, n in _UNITS if n <= self.limit / 8), _UNITS[-1])
        return unit, self.saves * size

    def to_dict(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        unit, saved = self.more
        return {**told, "heaviest": [list(x) for x in self.heaviest], "more": unit, "more_saves": saved}


#: Programs below this share of a bound show that the models lack something; nearer ones, that they round.
_BELOW = 0.98


@dataclass(frozen=True)
class PlanReasons:
    """A plan of layouts over ``mesh`` compared with the propagated layouts, for one device and one step. ``unit`` is
    the unit of ``cost``: seconds on ``machine``, or bytes sent. ``wanted_cost`` is the cost of the propagated layouts,
    ``bound`` a lower bound on the cost of all plans within the memory (inf: there is none). All three are by the models
    that plans are made with. ``judged`` and ``judged_wanted`` are the results of the whole per-device programs.
    ``taken`` is false if the propagated layouts stay; ``why`` then has the reason. ``limit``: bytes per device.
    ``decisions`` and the bytes in use, ``usage`` and ``wanted_usage``, are in program order.
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
        """The share of the cost that is not proven to be necessary: 0.01 is one percent. None without a bound, and if
        no plan is within the memory."""
        if not math.isfinite(self.bound):
            return None
        return max(0.0, self.cost - self.bound) / abs(self.cost) if self.cost else 0.0

    @property
    def proof(self) -> str:
        """The proven bound on other plans, in words."""
        if self.gap is None:
            if self.bound < 0:
                return f"no bound is proven ({self.method})"
            memory = "that of the program without a plan" if self.limit is None else bytes_text(self.limit)
            return f"by the model's estimate of memory, no plan is within {memory} ({self.method})"
        least = min((j.cost[0] for j in (self.judged, self.judged_wanted) if j.cost), default=math.inf)
        if self.unit == "B" and least < self.bound * _BELOW:  # of seconds, transfers beside computation hide some
            bound = self.cost_text(self.bound)
            return f"the cost model overestimates the bytes: by it, no plan is below {bound} ({self.method})"
        return f"no plan is below {self.cost_text(self.bound)} (gap {self.gap:.2%}, {self.method})"

    @cached_property
    def moved(self) -> tuple[LayoutDecision, ...]:
        """Decisions that change the propagated layout."""
        return tuple(d for d in self.decisions if d.moved)

    def most_telling(self, most: int) -> tuple[LayoutDecision, ...]:
        """At most this many decisions, in program order. Those that change the propagated layout come first, by their
        savings, then those whose next best costs most, then the largest. One decision of each kind is taken before a
        second of any kind."""
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
        """Plain data for JSON, without the memory over the program, which only pictures show."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("usage", "wanted_usage")}
        for name in ("judged", "judged_wanted"):
            judged: Judgement = told[name]
            told[name] = {"cost": judged.cost[0] if judged.cost else 0.0, "peak_bytes": judged.peak}
        for name in ("cost", "wanted_cost", "bound"):
            told[name] = told[name] if math.isfinite(told[name]) else None
        told["decisions"] = [d.to_dict() for d in self.decisions]
        return {**told, "mesh": self.mesh.shape, "gap": self.gap, "rows": [r.to_dict() for r in self.rows]}


def _rank(d: LayoutDecision) -> tuple[float, ...]:
    """A sort key, smaller for more informative decisions."""
    return (-d.moved, -(d.wanted_more or 0.0), -(d.next_more or 0.0), -d.local_bytes * len(d.names))


def layout_words(sharding: Sharding) -> str:
    """``data,None``, as in annotations; ``whole`` for a value that every device holds; with a note for partial
    values."""
    text = dims_text(sharding.dims) if any(d.axes for d in sharding.dims) else "whole"
    if sharding.unreduced:
        text += f", partial {sharding.reduction} over {'+'.join(map(str, sharding.unreduced))}"
    return text
