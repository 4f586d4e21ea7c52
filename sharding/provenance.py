"""Why a value is laid out as it is: where each axis on each dimension came from.

The steps are recorded as small tuples while propagation runs; text is made only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir import Instruction
from shardc.hlo.sharding import Sharding
from shardc.sharding.engine import Step
from shardc.sharding.factor_step import Direction, FactorStep, Gain
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
    """The history of a propagation. ``steps`` are (value, equation, gains), see `shardc.sharding.engine`.

    ``names`` are what `explain` knows, ``labels`` the arguments' names for its answers.
    """

    graph: Graph
    steps: Sequence[Step]
    shardings: Sequence[Sharding]
    names: Mapping[str, Instruction] = field(default_factory=dict)
    labels: Mapping[Instruction, str] = field(default_factory=dict)
    _by_value: dict[int, list[int]] = field(default_factory=dict, init=False)

    def explain(self, value_name: str) -> list[str]:
        """A few lines on a value: its sharding, where each axis came from, step by step, and lost conflicts.

        ``value_name`` is an instruction's name, with or without %, an argument's name or an op name. Raises
        `AnnotationError` with near names when there is none.
        """
        instruction = self.names.get(value_name) or self.names.get(value_name.lstrip("%"))
        if instruction is None or instruction not in self.graph.values:
            raise AnnotationError(f"no value is named {value_name!r}", fix=near_names(value_name, self.names))
        lines: list[str] = []
        for value in self.graph.values[instruction]:
            lines.append(f"{self.name(value)}: {self.shardings[value].as_layout}")
            for dim in range(self.shardings[value].rank):
                lines += _shortened([f"  {_line(r)}" for r in self.story(value, dim)])
            lines += [f"  conflict: {text}" for text in self.conflicts(value)]
        return lines

    def reasons(self, value: int) -> list[Reason]:
        """Everything that gave the value an axis: the annotation first, then in the order of steps."""
        out = [r for d in range(self.shardings[value].rank) if (r := self._annotation(value, d)) is not None]
        for number in self._steps_of(value):
            out += [self._reason(number, gain) for gain in self.steps[number - 1][2]]
        return out

    def story(self, value: int, dim: int) -> list[Reason]:
        """How the first axes on a dimension came there: back from value to value, to the annotation."""
        out: list[Reason] = []
        place: tuple[int, int] | None = (value, dim)
        seen: set[tuple[int, int]] = set()
        while place is not None and place not in seen:
            seen.add(place)
            reason, place = self._origin(*place)
            if reason is not None:
                out.append(reason)
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
                        f"{_via(e)}: along {factor_name(f)}, {self.name(e.tensors[a])} has "
                        f"{_axes(step, a, f)} and {self.name(e.tensors[b])} has {_axes(step, b, f)}"
                    )
        return out

    def name(self, value: int) -> str:
        """``%dot.3``, ``%while.1#2`` for a leaf of a tuple, or an argument's own name."""
        instruction, leaf = self.graph.origin[value]
        suffix = f"#{leaf}" if instruction.shape.is_tuple else ""
        return self.labels.get(instruction, f"%{instruction.name}") + suffix

    def _origin(self, value: int, dim: int) -> tuple[Reason | None, tuple[int, int] | None]:
        """Why a dimension has its first axes, and the value and dimension that they came from."""
        given = self._annotation(value, dim)
        if given is not None and given.axes:
            return given, None
        for number in self._steps_of(value):
            for gain in self.steps[number - 1][2]:
                if gain[0] == dim:
                    e = self._equation(self.steps[number - 1][1])
                    _, _, f, giver = gain
                    place = next((d for d, factors in enumerate(e.rule.tensors[giver]) if f in factors), 0)
                    return self._reason(number, gain), (e.tensors[giver], place)
        return None, None

    def _annotation(self, value: int, dim: int) -> Reason | None:
        given = self.graph.initial[value].dims[dim]
        if not self.graph.annotated[value] or not (given.axes or given.closed):
            return None
        source = self.graph.origin[value][0].source
        return Reason(self.name(value), dim, tuple(map(str, given.axes)), 0, "annotation", source_line=source)

    def _reason(self, number: int, gain: Gain) -> Reason:
        value, equation, _ = self.steps[number - 1]
        dim, axes, factor, giver = gain
        e = self._equation(equation)
        return Reason(
            self.name(value),
            dim,
            tuple(map(str, axes)),
            number,
            _via(e),
            factor_name(factor),
            self.name(e.tensors[giver]),
            e.instruction.source,
        )

    def _steps_of(self, value: int) -> list[int]:
        """Numbers (from 1) of the steps that changed a value."""
        if not self._by_value:
            for number, step in enumerate(self.steps, 1):
                self._by_value.setdefault(step[0], []).append(number)
        return self._by_value.get(value, [])

    def _equation(self, number: int) -> Equation:
        return self.graph.equations[number] if number >= 0 else self.graph.results[-1 - number]

    def _around(self, value: int) -> Iterator[Equation]:
        numbers = [*self.graph.users[value], self.graph.maker[value]]
        yield from (self.graph.equations[n] for n in sorted({n for n in numbers if n >= 0}))
        yield from (e for e in self.graph.results if value in e.tensors)


def _via(e: Equation) -> str:
    return f"{e.label or e.instruction.opcode} %{e.instruction.name}"


def _axes(step: FactorStep, tensor: int, factor: int) -> str:
    return "{" + ", ".join(map(str, step.projections[tensor].states[factor].axes)) + "}"


def _line(r: Reason) -> str:
    axes = ", ".join(r.axes) or "kept whole"
    where = f" ({r.source_line})" if r.source_line else ""
    how = "by annotation" if r.step == 0 else f"from {r.source} through {r.via}, factor {r.factor}, step {r.step}"
    return f"{r.value} dimension {r.dimension}: {axes} {how}{where}"


def _shortened(lines: list[str], keep: int = 8) -> list[str]:
    """A long way told by its two ends."""
    if len(lines) <= keep + 2:
        return lines
    return [*lines[: keep // 2], f"  ... {len(lines) - keep} more steps ...", *lines[-keep // 2 :]]
