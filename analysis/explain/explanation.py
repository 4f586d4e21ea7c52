"""What `explain` answers: plain data first, text second.

Bytes are per device and step, seconds are modelled on a machine (None without one). `Explanation.to_dict` is the
command's ``--json``; every class's ``to_dict`` has its fields under the same names.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any

from shardc.analysis.explain.plan_text import plan_html
from shardc.hlo.units import bytes_text, count_text, seconds_text
from shardc.launcher.drawings.fragments import COLLECTIVES, block, file_name, line, shortened, table
from shardc.partitioner.plan.plan_reasons import PlanReasons

__all__ = [
    "Alternative",
    "Change",
    "CollectiveReason",
    "Diagnostic",
    "Difference",
    "Explanation",
    "FactorChoice",
    "Link",
    "Party",
    "ProgramTotals",
    "Remedy",
    "Suggestion",
]

_WARNED = "border-left:4px solid #d98a00;padding:2px 8px;margin:4px 0"


@dataclass(frozen=True, slots=True)
class ProgramTotals:
    """A whole program: what a device sends, computes and needs, and the modelled time of a step (None: no machine)."""

    wire_bytes: float
    flops: int
    peak_bytes: int
    collectives: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One step on an axis' way: by ``annotation``, or from ``source`` through ``via`` by a factor of a ``rule``.

    ``kind`` is ``annotation``, ``step`` (of the propagation) or ``choice`` (taken when the program was partitioned,
    because that costs least; ``step`` is then -1).
    """

    value: str
    dimension: int
    axes: tuple[str, ...]
    kind: str
    step: int
    via: str = ""
    rule: str = ""
    factor: str = ""
    source: str = ""
    source_dimension: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """A tensor that determines a collective: ``role`` is ``moved``, ``against`` (has the axes elsewhere, or wants the
    dimension whole) or ``reduced`` (its contracted dimension is split). ``chain`` goes from the annotation to it."""

    role: str
    tensor: str
    dimension: int
    axes: tuple[str, ...]
    factor: str
    annotation: str
    chain: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to split the operation: axes by factor, what it would send (``unit`` B or s), and its local work
    relative to the way that was taken."""

    factors: str
    cost: float
    collectives: int
    unit: str
    work: float


@dataclass(frozen=True, slots=True)
class FactorChoice:
    """How the operation that meets two shardings is split, and what else was considered.

    ``cost`` is what it sends for this operation alone. ``regional`` tells of a decision for several operations at once.
    """

    operation: str
    opcode: str
    line: str
    rule: str
    factors: str
    cost: float
    unit: str
    alternatives: tuple[Alternative, ...]
    regional: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One annotation: ``name=spec`` for ``--annotate``; ``before`` is how the value is annotated or lies now."""

    name: str
    spec: str
    before: str

    @property
    def option(self) -> str:
        """For a shell's command line."""
        text = f"{self.name}={self.spec}"
        plain = set('"$`!').isdisjoint(text) and "\\" not in text
        return f'--annotate "{text}"' if "'" in text and plain else f"--annotate {shlex.quote(text)}"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Annotations that were tried: ``before`` and ``after`` are the whole program's totals.

    ``removes`` tells that the collective is gone, else it is cheaper. ``costs`` says what grows elsewhere.
    """

    what: str
    changes: tuple[Change, ...]
    before: ProgramTotals
    after: ProgramTotals
    removes: bool
    costs: str = ""

    @property
    def saved_bytes(self) -> float:
        return self.before.wire_bytes - self.after.wire_bytes

    @property
    def saved_seconds(self) -> float | None:
        if self.before.seconds is None or self.after.seconds is None:
            return None
        return self.before.seconds - self.after.seconds

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "saved_bytes": self.saved_bytes, "saved_seconds": self.saved_seconds}


@dataclass(frozen=True, slots=True)
class CollectiveReason:
    """One collective, or ``len(names)`` identical ones (equal layers).

    ``names`` are those in the partitioned module and in the report. ``count``, ``payload_bytes`` are of one of them;
    ``wire_bytes`` and ``seconds`` of all, in all their executions. ``value`` is the tensor by its user's name,
    ``before`` and ``after`` its layouts. ``why_none`` says why there is no remedy, empty where none was looked for.
    """

    names: tuple[str, ...]
    op: str
    axes: tuple[str, ...]
    group_size: int
    count: int
    unknown_trip_count: bool
    payload_bytes: int
    wire_bytes: float
    seconds: float | None
    value: str
    shape: str
    before: str
    after: str
    line: str
    op_name: str
    reason: str
    conflict: str
    parties: tuple[Party, ...]
    choice: FactorChoice | None
    remedies: tuple[Remedy, ...] = ()
    tried: int = 0
    why_none: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "remedies": [r.to_dict() for r in self.remedies]}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What can be done about a warning: in words, and as a verified remedy where there is one."""

    text: str
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A warning. ``kind`` is one of

    ``replicated-parameter``, ``full-gather``, ``padding``, ``unused-axis``, ``redundant-compute``, ``back-and-forth``,
    ``redundant-reduction``, ``whole-result``; ``numbers`` are named figures (bytes, shares between 0 and 1).
    """

    kind: str
    text: str
    subject: str
    line: str
    numbers: dict[str, float]
    way_out: Suggestion
    collectives: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        remedy = self.way_out.remedy
        told = {"text": self.way_out.text, "remedy": None if remedy is None else remedy.to_dict()}
        return {**asdict(self), "way_out": told}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a program's collectives are there, the most costly first, with warnings and the plan of layouts.

    What `Partitioned.explanation` returns. Costs are bytes, and seconds where a machine was given.

    >>> told = partitioned.explanation()
    >>> told.totals.wire_bytes
    5242884.0
    """

    program: str
    devices: int
    mesh: dict[str, int]
    machine: str
    totals: ProgramTotals
    collectives: tuple[CollectiveReason, ...]
    warnings: tuple[Diagnostic, ...]
    plan: PlanReasons | None = None
    why_no_plan: str = ""

    def of(self, name: str) -> CollectiveReason:
        """The reason of one collective, by its name in the per-device program.

        >>> partitioned.explanation().of("all-reduce.1").axes
        ('data',)
        """
        return next(c for c in self.collectives if name in c.names)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON.

        >>> len(partitioned.explanation().to_dict()["collectives"])
        3
        """
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **told,
            "version": 1,
            "totals": asdict(self.totals),
            "collectives": [c.to_dict() for c in self.collectives],
            "warnings": [w.to_dict() for w in self.warnings],
            "plan": None if self.plan is None else self.plan.to_dict(),
        }

    def _repr_html_(self) -> str:
        timed = self.totals.seconds is not None
        rows = [
            (
                c.op, c.value, "+".join(c.axes) or "groups", str(c.count * len(c.names)),
                seconds_text(c.seconds or 0.0) if timed else bytes_text(c.wire_bytes), file_name(c.line),
                shortened(c.reason, 120), c.remedies[0].what if c.remedies else "",
            )
            for c in self.collectives
        ]  # fmt: skip
        cost = "time" if timed else "sent"
        columns = ("collective", "value", "axes", "times", cost, "source", "reason", "what would remove it")
        warned = [f"{w.text} ({w.way_out.text})" if w.way_out.text else w.text for w in self.warnings]
        facts = [count_text(self.devices, "device"), f"{bytes_text(self.totals.wire_bytes)} sent by each"]
        facts += [self.machine] if self.machine else []
        shown = table(columns, rows, COLLECTIVES) if rows else line("no collectives: nothing is sent")
        planned = "" if self.plan is None else plan_html(self.plan)
        return block("Explanation", self.program, facts, "".join(line(w, _WARNED) for w in warned) + planned + shown)

    def as_text(self, *, top: int = 10, verbose: bool = False) -> str:
        """What the terminal shows: the ``top`` most costly collectives (0: all), and whole chains when ``verbose``.

        >>> partitioned.explanation().as_text(top=1).splitlines()[0]
        'jit_step on 4 devices (data=2, model=2): 3 collectives a step, ...'
        """
        from shardc.analysis.explain.write import explanation_text

        return explanation_text(self, top=top, verbose=verbose)


@dataclass(frozen=True, slots=True)
class Difference:
    """What changes between two sets of annotations of one program: what `Partitioned.difference` returns.

    Collectives are matched by what they move, for which source line. Rows of ``collectives`` are (what, bytes before,
    bytes after, times before, times after). Rows of ``shardings`` are (value, before, after) for those that differ.

    >>> change = partitioned.difference(program.annotate({"x": P("data", "model")}).partition())
    >>> change.before.wire_bytes
    5242884.0
    """

    before: ProgramTotals
    after: ProgramTotals
    collectives: tuple[tuple[str, float, float, int, int], ...]
    shardings: tuple[tuple[str, str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON.

        >>> sorted(partitioned.difference(partitioned).to_dict())
        ['after', 'before', 'collectives', 'shardings', 'version']
        """
        keys = ("collective", "wire_bytes_before", "wire_bytes_after", "times_before", "times_after")
        return {
            "version": 1,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "collectives": [dict(zip(keys, row, strict=True)) for row in self.collectives],
            "shardings": [dict(zip(("value", "before", "after"), row, strict=True)) for row in self.shardings],
        }

    def as_text(self) -> str:
        """What the terminal shows.

        >>> len(partitioned.difference(partitioned).as_text()) > 0
        True
        """
        from shardc.analysis.explain.write import difference_text

        return difference_text(self)
