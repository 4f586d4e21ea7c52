"""The history of a propagation: for each axis on each dimension of a value, the step that put it there.

The steps are recorded as small tuples while propagation runs; text is made only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.units import kind_text
from shardc.sharding.axes.sub_axes import overlaps
from shardc.sharding.notations.names import is_glob, match_names, near_names
from shardc.sharding.propagation.engine import Step
from shardc.sharding.propagation.factor_step import Gain
from shardc.sharding.propagation.graph import Equation, PropagationGraph
from shardc.sharding.rules.factor_rule import FactorRule, factor_name

__all__ = ["Place", "Provenance", "Reason"]


@dataclass(frozen=True, slots=True)
class Reason:
    """How axes came onto one dimension of one value.

    ``step`` is 0 for an annotation, else the number of the propagation step; ``via`` names the instruction or edge
    that carried it, ``factor`` the factor and ``rule`` the rule; ``source`` and ``source_dimension`` tell who gave it.
    ``source_line`` is that of the annotated value or of the instruction.
    """

    value: str
    dimension: int
    axes: tuple[str, ...]
    step: int
    via: str = ""
    factor: str = ""
    source: str = ""
    source_line: str = ""
    source_dimension: int = 0
    rule: str = ""


#: A value's dimension and an axis on it.
Place = tuple[int, int, AxisRef]


@dataclass(slots=True)
class Provenance:
    """The history of a propagation. ``steps`` are (value, equation, gains), see `shardc.sharding.propagation.engine`.

    ``names`` are what `find` knows, ``labels`` the arguments' own names.
    """

    graph: PropagationGraph
    steps: Sequence[Step]
    shardings: Sequence[Sharding]
    names: Mapping[str, Instruction] = field(default_factory=dict)
    labels: Mapping[Instruction, str] = field(default_factory=dict)
    _by_value: dict[int, list[int]] = field(default_factory=dict, init=False)
    _results: dict[int, list[Equation]] = field(default_factory=dict, init=False)

    def find(self, value_name: str) -> tuple[int, ...]:
        """The numbers of a value's leaves; raises `AnnotationError` with near names when there is no such value."""
        if not isinstance(value_name, str):
            what = f"a value is named by text, not by {kind_text(value_name)}"
            raise AnnotationError(what, fix="give the name of an argument or an instruction")
        instruction = self.names.get(value_name) or self.names.get(value_name.lstrip("%"))
        if instruction is None or instruction not in self.graph.values:
            raise AnnotationError(
                f"no value is named {value_name!r}", fix=near_names(value_name, self.names, self._listed())
            )
        return self.graph.values[instruction]

    def matching(self, pattern: str) -> list[str]:
        """The values' names that match a glob (see `match_names`), one per value; ``pattern`` itself where it is
        none, or none match."""
        if not is_glob(pattern):
            return [pattern]
        own: dict[Instruction, str] = {}
        for name, i in self.names.items():
            if i in self.graph.values and self.labels.get(i, name) == name:
                own.setdefault(i, name)
        return match_names(pattern.lstrip("%"), own.values()) or [pattern]

    def _listed(self) -> list[str]:
        """The names that errors list: an argument by its own name only."""
        return [n for n, i in self.names.items() if self.labels.get(i, n) == n]

    def reasons(self, value: int) -> list[Reason]:
        """Everything that gave the value an axis: the annotation first, then in the order of steps."""
        out = [r for d in range(self.shardings[value].rank) if (r := self.annotation(value, d)) is not None]
        for number in self._steps_of(value):
            out += self.step(number)
        return out

    def step(self, number: int) -> list[Reason]:
        """What step ``number`` (from 1) gave its value."""
        return [self._reason(number, gain) for gain in self.steps[number - 1][2]]

    def story(self, value: int, dim: int, axis: AxisRef | None = None) -> list[Reason]:
        """How an axis (by default the first one) came onto a dimension: from value to value, back to the annotation."""
        axes = self.shardings[value].dims[dim].axes
        if axis is None and not axes:
            given = self.annotation(value, dim)
            return [] if given is None else [given]
        out: list[Reason] = []
        place: Place | None = (value, dim, axis or axes[0])
        seen: set[Place] = set()
        while place is not None and place not in seen:
            seen.add(place)
            reason, place = self.origin(place)
            if reason is not None:
                out.append(reason)
        return out

    def root(self, place: Place) -> Place | None:
        """The annotated place that an axis came from; None where it came from a manual computation."""
        seen: set[Place] = set()
        here: Place | None = place
        while here is not None and here not in seen:
            seen.add(here)
            reason, before = self.origin(here)
            if before is None:
                return (
                    here
                    if reason is not None and reason.via == "annotation" and self.graph.annotated[here[0]]
                    else None
                )
            here = before
        return None

    def origin(self, place: Place) -> tuple[Reason | None, Place | None]:
        """Why an axis is on a dimension, and the place that it came from (None for an annotation)."""
        value, dim, axis = place
        mesh = self.shardings[value].mesh
        if any(overlaps(axis, a, mesh) for a in self.graph.initial[value].dims[dim].axes):
            return self.annotation(value, dim), None
        for number in self._steps_of(value):
            for gain in self.steps[number - 1][2]:
                if gain[0] == dim and any(overlaps(axis, a, mesh) for a in gain[1]):
                    e = self._equation(self.steps[number - 1][1])
                    _, _, f, giver = gain
                    return self._reason(number, gain), (e.tensors[giver], _dimension_of(e, giver, f), axis)
        return self._across_border(place)

    def _across_border(self, place: Place) -> tuple[Reason | None, Place | None]:
        """An axis that a value has because a manual computation names it, or because the value inside has it."""
        value, dim, axis = place
        inside, border = self.graph.outside.get(value, (None, None))
        borders = [border, *(e.border for e in self.around(value))]
        if any(b is not None and axis.name in b.axes and axis in b.given.dims[dim].axes for b in borders):
            source = self.graph.origin[value][0].source
            return Reason(self.name(value), dim, (str(axis),), 0, "manual computation", source_line=source), None
        return None, None if inside is None else (inside, dim, axis)

    def name(self, value: int) -> str:
        """``%dot.3``, ``%while.1#2`` for a leaf of a tuple, or an argument's own name."""
        instruction, leaf = self.graph.origin[value]
        suffix = f"#{leaf}" if instruction.shape.is_tuple else ""
        return self.labels.get(instruction, f"%{instruction.name}") + suffix

    def annotation(self, value: int, dim: int) -> Reason | None:
        """What an annotation says of a dimension; None where it says nothing."""
        given = self.graph.initial[value].dims[dim]
        if not self.graph.annotated[value] or not (given.axes or given.closed):
            return None
        source = self.graph.origin[self.annotation_source(value)][0].source
        return Reason(self.name(value), dim, tuple(map(str, given.axes)), 0, "annotation", source_line=source)

    def annotation_source(self, value: int) -> int:
        """The value whose annotation counts for ``value``: itself, or a constraint that reads it."""
        if self.graph.origin[value][0].sharding is None:
            for e in self.around(value):
                if not e.label and is_constraint(e.instruction) and e.tensors[0] == value:
                    return e.tensors[-1]
        return value

    def _reason(self, number: int, gain: Gain) -> Reason:
        value, equation, _ = self.steps[number - 1]
        dim, axes, factor, giver = gain
        e = self._equation(equation)
        return Reason(
            self.name(value),
            dim,
            tuple(map(str, axes)),
            number,
            e.via,
            factor_name(factor),
            self.name(e.tensors[giver]),
            e.instruction.source,
            _dimension_of(e, giver, factor),
            _text(e.rule),
        )

    def _steps_of(self, value: int) -> list[int]:
        """Numbers (from 1) of the steps that changed a value."""
        if not self._by_value:
            for number, step in enumerate(self.steps, 1):
                self._by_value.setdefault(step[0], []).append(number)
        return self._by_value.get(value, [])

    def _equation(self, number: int) -> Equation:
        return self.graph.equations[number] if number >= 0 else self.graph.results[-1 - number]

    def around(self, value: int) -> Iterator[Equation]:
        """The equations that a value takes part in, in program order."""
        numbers = [*self.graph.users[value], *self.graph.makers[value]]
        yield from (self.graph.equations[n] for n in sorted({n for n in numbers if n >= 0}))
        if not self._results:
            for e in self.graph.results:
                for v in dict.fromkeys(e.tensors):
                    self._results.setdefault(v, []).append(e)
        yield from self._results.get(value, ())


@lru_cache(maxsize=4096)
def _text(rule: FactorRule) -> str:
    return str(rule)


def _dimension_of(e: Equation, tensor: int, factor: int) -> int:
    return next((d for d, factors in enumerate(e.rule.tensors[tensor]) if factor in factors), 0)
