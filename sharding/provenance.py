"""Why a value is laid out as it is: where each axis on each dimension came from.

The steps are recorded as small tuples while propagation runs; text is made only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir import Instruction
from shardc.hlo.sharding import Sharding
from shardc.sharding.engine import Step
from shardc.sharding.factor_step import Direction, FactorStep
from shardc.sharding.factors import factor_name
from shardc.sharding.graph import Equation, Graph
from shardc.sharding.names import near_names

__all__ = ["Provenance", "Reason"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One axis list on one dimension of one value.

    ``step`` is 0 for an annotation, else the number of the propagation step; ``via`` names the instruction or edge
    that carried it, ``factor`` the factor, ``source`` the value that gave it.
    """

    value: str
    dimension: int
    axes: tuple[str, ...]
    step: int
    via: str = ""
    factor: str = ""
    source: str = ""
    source_line: str = ""


@dataclass(slots=True)
class Provenance:
    """The history of a propagation. ``steps`` are (value, equation, gains), see `shardc.sharding.engine`."""

    graph: Graph
    steps: Sequence[Step]
    shardings: Sequence[Sharding]
    names: dict[str, Instruction] = field(default_factory=dict)

    def reasons(self, value: int) -> list[Reason]:
        """All reasons of a value, annotations first, then in the order of steps."""
        name = self._name(value)
        out: list[Reason] = []
        if self.graph.annotated[value]:
            source = self.graph.origin[value][0].source
            for d, dim in enumerate(self.graph.initial[value].dims):
                if dim.axes or dim.closed:
                    out.append(Reason(name, d, tuple(map(str, dim.axes)), 0, "annotation", source_line=source))
        for number, (v, equation, gains) in enumerate(self.steps, 1):
            if v != value:
                continue
            e = self._equation(equation)
            for d, axes, f, giver in gains:
                out.append(
                    Reason(
                        name,
                        d,
                        tuple(map(str, axes)),
                        number,
                        _via(e),
                        factor_name(f),
                        self._name(e.tensors[giver]),
                        e.instruction.source,
                    )
                )
        return out

    def conflicts(self, value: int) -> list[str]:
        """What the operations around a value disagree on in the end: those places need a reshard."""
        out: list[str] = []
        for e in self._around(value):
            olds = [self.shardings[v] for v in e.tensors]
            step = FactorStep(e.rule, olds, (Direction.BOTH,) * len(e.rule.factors))
            for f, a, b in step.conflicts():
                if value in (e.tensors[a], e.tensors[b]):
                    out.append(
                        f"{_via(e)}: along {factor_name(f)}, {self._name(e.tensors[a])} has "
                        f"{_axes(step, a, f)} and {self._name(e.tensors[b])} has {_axes(step, b, f)}"
                    )
        return out

    def explain(self, value_name: str) -> list[str]:
        """A few lines on a value: its sharding, where each axis came from, step by step, and lost conflicts.

        ``value_name`` is an instruction's name, with or without %, or an argument's name. Raises `AnnotationError`
        with near names when there is none.
        """
        instruction = self.names.get(value_name) or self.names.get(value_name.lstrip("%"))
        if instruction is None or instruction not in self.graph.values:
            raise AnnotationError(f"no value is named {value_name!r}", fix=near_names(value_name, self.names))
        lines: list[str] = []
        for value in self.graph.values[instruction]:
            lines.append(f"{self._name(value)}: {self.shardings[value].as_layout}")
            lines += [f"  {line}" for line in self._story(value)]
            lines += [f"  conflict: {text}" for text in self.conflicts(value)]
        return lines

    def _story(self, value: int) -> Iterator[str]:
        """Each axis of a value back to its annotation."""
        for d, dim in enumerate(self.shardings[value].dims):
            if not dim.axes:
                continue
            at, indent, seen = (value, d), "", {value}
            while True:
                reason, giver = self._last(*at)
                if reason is None:
                    break
                yield indent + _reason_line(reason)
                if giver is None or giver[0] in seen:
                    break
                seen.add(giver[0])
                at, indent = giver, indent + "  "

    def _last(self, value: int, dim: int) -> tuple[Reason | None, tuple[int, int] | None]:
        """Why dimension ``dim`` of a value has its first axes, and the place they came from."""
        for number, (v, equation, gains) in enumerate(self.steps, 1):
            if v != value:
                continue
            for d, axes, f, giver in gains:
                if d == dim:
                    e = self._equation(equation)
                    place = next((k for k, g in enumerate(e.rule.tensors[giver]) if f in g), 0)
                    names = (self._name(value), self._name(e.tensors[giver]))
                    reason = Reason(
                        names[0], d, tuple(map(str, axes)), number, _via(e), factor_name(f), names[1],
                        e.instruction.source,
                    )  # fmt: skip
                    return reason, (e.tensors[giver], place)
        given = self.graph.initial[value].dims[dim]
        if self.graph.annotated[value] and given.axes:
            source = self.graph.origin[value][0].source
            axes_text = tuple(map(str, given.axes))
            return Reason(self._name(value), dim, axes_text, 0, "annotation", source_line=source), None
        return None, None

    def _equation(self, number: int) -> Equation:
        return self.graph.equations[number] if number >= 0 else self.graph.results[-1 - number]

    def _around(self, value: int) -> Iterator[Equation]:
        numbers = [*self.graph.users[value], self.graph.maker[value]]
        yield from (self.graph.equations[n] for n in sorted({n for n in numbers if n >= 0}))
        yield from (e for e in self.graph.results if value in e.tensors)

    def _name(self, value: int) -> str:
        instruction, leaf = self.graph.origin[value]
        suffix = f"#{leaf}" if instruction.shape.is_tuple else ""
        return f"%{instruction.name}{suffix}"


def _via(e: Equation) -> str:
    return f"{e.label or e.instruction.opcode} %{e.instruction.name}"


def _axes(step: FactorStep, tensor: int, factor: int) -> str:
    return "{" + ", ".join(map(str, step.projections[tensor].states[factor].axes)) + "}"


def _reason_line(r: Reason) -> str:
    axes = ", ".join(r.axes)
    where = f" ({r.source_line})" if r.source_line else ""
    if r.step == 0:
        return f"{r.value} dimension {r.dimension}: {axes} by annotation{where}"
    how = f"from {r.source} through {r.via}, factor {r.factor}, step {r.step}"
    return f"{r.value} dimension {r.dimension}: {axes} {how}{where}"
