"""Missed propagation: axes that a value's neighbours have and it does not, and the reason for each.

Looked up when somebody asks, from the outcome alone: for every operation around a value, the factor's axes on the
other tensors are compared with the value's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.sharding import AxisRef
from shardc.sharding.axes.sub_axes import extent, is_prefix_list, minus, overlaps
from shardc.sharding.propagation.factor_step import FactorStep
from shardc.sharding.propagation.graph import Equation
from shardc.sharding.provenance.history import Provenance
from shardc.sharding.rules.factor_rule import Direction, factor_name

__all__ = ["Agreed", "MissedAxes", "missed_axes"]


@dataclass(frozen=True, slots=True)
class MissedAxes:
    """Axes that ``other`` has on ``factor`` and the value does not, at ``dimension``; ``because`` says why.

    In a conflict both have axes there that do not go together, and the operation needs a reshard.
    """

    dimension: int
    axes: tuple[str, ...]
    other: str
    via: str
    factor: str
    because: str
    is_conflict: bool = False

    def __str__(self) -> str:
        if self.is_conflict:
            return f"conflict: {self.via}: along {self.factor}, {self.because}"
        axes = ", ".join(self.axes)
        return f"lost: dimension {self.dimension} without {axes} of {self.other} ({self.via}): {self.because}"


#: Rules with the shardings of their tensors (by identity) at which all tensors agree.
Agreed = dict[tuple[object, ...], bool]


def missed_axes(history: Provenance, value: int, agreed: Agreed | None = None) -> list[MissedAxes]:
    """What operations around a value would have given it, once each, conflicts last.

    ``agreed`` remembers operations that have nothing to tell, for those who ask about many values.
    """
    found: dict[tuple[int, tuple[str, ...], str], MissedAxes] = {}
    known: Agreed = {} if agreed is None else agreed
    for e in history.around(value):
        olds = [history.shardings[v] for v in e.tensors]
        key = (e.rule, *map(id, olds))
        if known.get(key):
            continue
        mesh = next((s.mesh for s in olds if s.mesh.axes), history.graph.mesh)
        step = FactorStep(e.rule, olds, (Direction.BOTH,) * len(e.rule.factors), mesh=mesh)
        known[key] = _all_agree(step)
        for position, v in enumerate(e.tensors):
            if v == value and not known[key]:
                for missed in _missed_in(history, e, step, position):
                    found.setdefault((missed.dimension, missed.axes, missed.because), missed)
    return sorted(found.values(), key=lambda x: (x.is_conflict, x.dimension, x.axes))


def _all_agree(step: FactorStep) -> bool:
    """Whether all tensors have the same axes on each factor."""
    axes: dict[int, object] = {}
    return all(axes.setdefault(f, s.axes) == s.axes for p in step.projections for f, s in p.states.items())


def _missed_in(history: Provenance, e: Equation, step: FactorStep, position: int) -> Iterator[MissedAxes]:
    """One operation, the value as one of its tensors."""
    states = [p.states for p in step.projections]
    for dim, factors in enumerate(e.rule.tensors[position]):
        for f in factors:
            mine = states[position][f].axes
            for other, v in enumerate(e.tensors):
                theirs = states[other][f].axes if f in states[other] else ()
                if v == e.tensors[position] or is_prefix_list(theirs, mine, step.mesh):
                    continue
                name, extra = history.name(v), minus(theirs, mine, step.mesh)
                texts = tuple(map(str, extra or theirs))
                if is_prefix_list(mine, theirs, step.mesh):
                    because = _because(history, e, step, position, (dim, f, extra[0]))
                    yield MissedAxes(dim, texts, name, e.via, factor_name(f), because)
                else:
                    own = history.name(e.tensors[position])
                    because = f"{own} has {_list(mine)} and {name} has {_list(theirs)}"
                    yield MissedAxes(dim, texts, name, e.via, factor_name(f), because, is_conflict=True)


def _because(
    history: Provenance, e: Equation, step: FactorStep, position: int, wanted: tuple[int, int, AxisRef]
) -> str:
    """What stands against the axis ``wanted`` (dimension, factor, axis)."""
    dim, factor, axis = wanted
    value, mesh = e.tensors[position], step.mesh
    sharding, given = history.shardings[value], history.graph.initial[value]
    for d, entry in enumerate(sharding.dims):
        if any(overlaps(axis, a, mesh) for a in entry.axes):
            return f"dimension {d} has {axis}"
    for kind, axes in (("replicated", given.replicated), ("unreduced", given.unreduced)):
        if any(overlaps(axis, a, mesh) for a in axes):
            return f"{axis} is kept {kind} by annotation{_source(history, value)}"
    if given.dims[dim].closed:
        return f"the dimension is closed by annotation{_source(history, value)}"
    size = e.rule.factors[factor].size
    shards = extent(step.projections[position].states[factor].axes, mesh) * axis.extent(mesh)
    if size % shards:
        return f"{shards} shards do not divide {size}"
    if e.rule.factors[factor].blocked:
        return f"{e.instruction.opcode} propagates no axes along this dimension"
    return _other_holder(history, e, step, position, (factor, axis)) or "the operation propagates nothing this way"


def _other_holder(
    history: Provenance, e: Equation, step: FactorStep, position: int, wanted: tuple[int, AxisRef]
) -> str:
    """A third tensor that has another axis on the factor, or the axis on another factor."""
    factor, axis = wanted
    for other, v in enumerate(e.tensors):
        states = step.projections[other].states
        for f, state in states.items() if other != position else ():
            if f != factor and any(overlaps(axis, a, step.mesh) for a in state.axes):
                return f"{history.name(v)} has {axis} on factor {factor_name(f)}"
            if f == factor and state.axes and not any(overlaps(axis, a, step.mesh) for a in state.axes):
                return f"{history.name(v)} has {_list(state.axes)} there"
    return ""


def _list(axes: Sequence[AxisRef]) -> str:
    return "{" + ", ".join(map(str, axes)) + "}"


def _source(history: Provenance, value: int) -> str:
    source = history.graph.origin[value][0].source
    return f" ({source})" if source else ""
