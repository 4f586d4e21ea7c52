"""From a collective's cause to its story: who annotated what, how it travelled, and where two shardings met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardc.analysis.explain.explanation import Alternative, FactorChoice, Link, Party
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import AxisRef
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.strategy.cause import Cause, SplitDecision
from shardc.partitioner.strategy.choose import volume
from shardc.sharding.axes.sub_axes import overlaps
from shardc.sharding.propagation.graph import Equation
from shardc.sharding.provenance.history import Provenance, Reason
from shardc.sharding.rules.factor_rule import FactorKind, factor_name

__all__ = ["AxisPlace", "CauseTracer", "layout_text"]

#: Alternatives that are told.
_OTHERS = 5


@dataclass(frozen=True, slots=True)
class AxisPlace:
    """A dimension of a propagated value (its number in the graph) with the axes that are of interest."""

    role: str
    value: int
    dimension: int
    axes: tuple[AxisRef, ...]
    factor: str = ""


def layout_text(table: AxisTable, layout: AxisLayout) -> str:
    """``[{data}, {}]``."""
    return str(table.to_sharding(layout).as_layout)


class CauseTracer:
    """Looks causes up in the history of the propagation."""

    def __init__(self, history: Provenance) -> None:
        self.history = history

    # -- names -----------------------------------------------------------------------------------------------

    def number(self, name: str, wanted: AxisLayout | None = None, table: AxisTable | None = None) -> int | None:
        """The propagated value that an instruction of the rewritten program is; None for those made on the way.

        Of a tuple's leaves the first one that lies as ``wanted``.
        """
        instruction = self.history.names.get(name)
        leaves = self.history.graph.values.get(instruction, ()) if instruction is not None else ()
        if len(leaves) < 2 or wanted is None or table is None:
            return leaves[0] if leaves else None
        told = table.to_sharding(wanted).as_layout
        alike = (v for v in leaves if self.history.shardings[v].as_layout.dims == told.dims)
        return next(alike, None)

    def moved(self, cause: Cause) -> int | None:
        """The value that a cause is about."""
        if cause.operand is not None:
            found = self.number(cause.operand.name)
            if found is not None and self.history.graph.dims[found] == cause.shape.dims:
                return found
        found = self.number(cause.value, cause.before, cause.table)
        return found if found is not None and self.history.graph.dims[found] == cause.shape.dims else None

    def name(self, cause: Cause) -> str:
        """The value by its user's name: an argument's, else the instruction's with what it is made of."""
        value = self.moved(cause)
        if value is None:
            return f"%{cause.value}"
        own = self.history.name(value)
        origin = self.argument_behind(value)
        return own if origin is None or own == origin else f"{own} (of {origin})"

    def argument_behind(self, value: int) -> str | None:
        """The argument that a value is, moved, retyped or cut at most, also through loops; None if it is computed."""
        seen: set[int] = set()
        work = [value]
        while work:
            v = work.pop()
            if v in seen:
                continue
            seen.add(v)
            instruction, _ = self.history.graph.origin[v]
            if instruction in self.history.labels:
                return self.history.labels[instruction]
            for e in self.history.around(v):
                operands = e.tensors[: len(e.rule.operands)]
                if v in e.tensors[len(operands) :] and (e.label or e.instruction.opcode in _CARRIES):
                    work.extend(o for o in operands[:1] if o not in seen)
        return None

    # -- what determines it ---------------------------------------------------------------------------------------

    def places(self, cause: Cause) -> list[AxisPlace]:
        """Where the axes of a cause lie: on the moved value, on what stands against it, on what was contracted."""
        out = list(self._moved_places(cause))
        if cause.before.unreduced and cause.made is not None:
            out += self._reduced(cause, cause.made)
        if cause.asked is not None:
            out += self._against(cause, cause.asked)
        elif cause.reader is not None:
            out += self._readers(cause, cause.reader)
        return list(dict.fromkeys(out))

    def _moved_places(self, cause: Cause) -> Iterator[AxisPlace]:
        value, table = self.moved(cause), cause.table
        if value is None:
            return
        for dim, (old, new) in enumerate(zip(cause.before.dims, cause.after.dims, strict=True)):
            gone = tuple(a for a in old if a not in new)
            if gone or (old and old != new):
                yield AxisPlace("moved", value, dim, table.axes(gone or old))

    def _reduced(self, cause: Cause, made: SplitDecision) -> Iterator[AxisPlace]:
        """The operands whose contracted dimension is split."""
        rule, table = made.problem.rule, cause.table
        for f in rule.of_kind(FactorKind.REDUCTION):
            atoms = tuple(a for a in made.choice.factors[f] if a in cause.before.unreduced)
            if not atoms:
                continue
            for tensor, dim in rule.places(f):
                if tensor < len(made.op.operands):
                    value = self.number(made.op.operands[tensor].name)
                    if value is not None:
                        yield AxisPlace("reduced", value, dim, table.axes(atoms), factor_name(f))

    def _against(self, cause: Cause, asked: SplitDecision) -> Iterator[AxisPlace]:
        """Tensors of the reader that have the moved axes on another factor, or those that leave the value's whole."""
        table, rule = cause.table, asked.problem.rule
        tensors = self._tensors(asked)
        mine = [t for t, o in enumerate(asked.op.operands) if o is cause.operand]
        own = {f for t in mine for d in rule.operands[t] for f in d}
        for atoms in self._moving(cause):
            holders = [f for f, taken in enumerate(asked.choice.factors) if set(taken) & set(atoms)]
            for f in holders or own:
                for t, dim in rule.places(f):
                    if t in mine or t >= len(tensors) or tensors[t] is None:
                        continue
                    value = tensors[t]
                    assert value is not None
                    held = self._held(value, dim, table.axes(atoms)) if holders else ()
                    if held or not holders:
                        yield AxisPlace("against", value, dim, held, factor_name(f))

    def _tensors(self, decided: SplitDecision) -> list[int | None]:
        """Operands and results of an operation as propagated values."""
        results = self.history.names.get(decided.op.name)
        leaves = self.history.graph.values.get(results, ()) if results is not None else ()
        return [*(self.number(o.name) for o in decided.op.operands), *leaves]

    def _held(self, value: int, dim: int, axes: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        sharding = self.history.shardings[value]
        if dim >= sharding.rank:
            return ()
        return tuple(a for a in sharding.dims[dim].axes if any(overlaps(a, b, sharding.mesh) for b in axes))

    def _readers(self, cause: Cause, reader: Instruction) -> Iterator[AxisPlace]:
        """What a result, a loop's carry or a constraint wants."""
        instruction = self.history.names.get(reader.name)
        leaves = self.history.graph.values.get(instruction, ()) if instruction is not None else ()
        wanted = cause.table.to_sharding(cause.after).as_layout.dims
        for value in leaves:
            if self.history.graph.dims[value] != cause.shape.dims:
                continue
            if self.history.shardings[value].as_layout.dims == wanted:
                for dim, (old, new) in enumerate(zip(cause.before.dims, cause.after.dims, strict=True)):
                    if old != new:
                        yield AxisPlace("against", value, dim, cause.table.axes(new))
                return

    @staticmethod
    def _moving(cause: Cause) -> list[Atoms]:
        """The atoms that leave a dimension, per dimension."""
        pairs = zip(cause.before.dims, cause.after.dims, strict=True)
        return [gone for old, new in pairs if (gone := tuple(a for a in old if a not in new))]

    # -- stories ---------------------------------------------------------------------------------------------

    def parties(self, cause: Cause) -> tuple[Party, ...]:
        """The places with their stories."""
        told = (self._party(place, axis) for place in self.places(cause) for axis in place.axes or (None,))
        return tuple(dict.fromkeys(told))

    def _party(self, place: AxisPlace, axis: AxisRef | None) -> Party:
        history = self.history
        story = self.story(place, axis)
        chain = tuple(_link(r) for r in reversed(story))
        annotation = ""
        if chain and chain[0].kind == "annotation":
            first = chain[0]
            where = f" ({first.line})" if first.line and first.value.startswith("%") else ""
            annotation = f"{first.value} dimension {first.dimension}: {'+'.join(first.axes) or 'whole'}{where}"
        axes = () if axis is None else (str(axis),)
        return Party(place.role, history.name(place.value), place.dimension, axes, place.factor, annotation, chain)

    def story(self, place: AxisPlace, axis: AxisRef | None) -> list[Reason]:
        """How an axis came to a place, back to the annotation; where it was taken for its cost, through the operation
        that makes the value, whose operand has it."""
        history = self.history
        if axis is None or self._held(place.value, place.dimension, (axis,)):
            return history.story(place.value, place.dimension, axis)
        before = self.giver(place.value, place.dimension, axis)
        if before is None:
            return []
        e, factor, (value, dim, held) = before
        name, rule = factor_name(factor), str(e.rule)
        taken = Reason(
            history.name(place.value), place.dimension, (str(axis),), -1, e.via, name, history.name(value),
            e.instruction.source, dim, rule,
        )  # fmt: skip
        return [taken, *history.story(value, dim, held)]

    def giver(self, value: int, dim: int, axis: AxisRef) -> tuple[Equation, int, tuple[int, int, AxisRef]] | None:
        """The operand that has an axis which a value's dimension could take from it: (equation, factor, place)."""
        for e in self.history.around(value):
            results = e.tensors[len(e.rule.operands) :]
            if value not in results:
                continue
            tensor = len(e.rule.operands) + results.index(value)
            for f in e.rule.tensors[tensor][dim]:
                for t, d in e.rule.places(f):
                    held = self._held(e.tensors[t], d, (axis,)) if t < len(e.rule.operands) else ()
                    if held:
                        return e, f, (e.tensors[t], d, held[0])
        return None

    def root(self, place: AxisPlace, axis: AxisRef) -> tuple[int, int] | None:
        """The value and dimension that are annotated with the axis of a place."""
        before = None
        if not self._held(place.value, place.dimension, (axis,)):
            before = self.giver(place.value, place.dimension, axis)
        found = self.history.root(before[2] if before is not None else (place.value, place.dimension, axis))
        return None if found is None else found[:2]

    def choice(self, decided: SplitDecision) -> FactorChoice:
        """A decision with what else was considered."""
        table, rule = decided.resharder.table, decided.problem.rule
        cost, _ = decided.cost()
        work = volume(table, rule, decided.choice.factors)
        told: dict[str, Alternative] = {}
        for other in decided.others():
            text = _factors(table, other.factors)
            relative = volume(table, rule, other.factors) / max(work, 1)
            told.setdefault(text, Alternative(text, other.cost[0], other.cost[1], decided.unit, relative))
        taken = _factors(table, decided.choice.factors)
        others = tuple(a for text, a in told.items() if text != taken)[:_OTHERS]
        op = decided.op
        regional = "" if decided.regional is None else str(decided.regional)
        return FactorChoice(f"%{op.name}", op.opcode, op.source, str(rule), taken, cost, decided.unit, others, regional)

    def conflict(self, cause: Cause) -> str:
        """In a sentence: what does not go together."""
        if cause.before.unreduced and cause.made is not None:
            factors = cause.made.problem.rule.of_kind(FactorKind.REDUCTION)
            split = [factor_name(f) for f in factors if cause.made.choice.factors[f]]
            names = _names(cause.table, cause.before.unreduced)
            text = f"{cause.made.op.opcode} %{cause.made.op.name} sums over {', '.join(split)}, split over {names}"
            if cause.after.used - cause.before.used:
                text += f"; needed as {layout_text(cause.table, cause.after)}"
            return text
        wanted = layout_text(cause.table, cause.after)
        lies = f"{self.name(cause)} has the layout {layout_text(cause.table, cause.before)}"
        if cause.asked is None:
            who = _reader(cause.reader)
            return f"{lies}, needed as {wanted}" + (f" by {who}" if who else "")
        op = cause.asked.op
        taken = _factors(cause.asked.resharder.table, cause.asked.choice.factors)
        return f"{lies}; {op.opcode} %{op.name}, split {taken or 'nowhere'}, needs the layout {wanted}"


#: Operations that only carry a value on.
_CARRIES = frozenset(
    ("convert", "copy", "reshape", "transpose", "slice", "dynamic-slice", "get-tuple-element", "bitcast", "reverse")
) | {"optimization-barrier", "custom-call", "broadcast"}


def _reader(reader: Instruction | None) -> str:
    if reader is None:
        return ""
    if reader.opcode == "tuple":
        return "the results" if not reader.metadata else f"the results of {reader.source}"
    return f"{reader.opcode} %{reader.name}"


def _link(r: Reason) -> Link:
    kind = "annotation" if r.step == 0 else "step" if r.step > 0 else "choice"
    axes = tuple(r.axes)
    return Link(
        r.value, r.dimension, axes, kind, r.step, r.via, r.rule, r.factor, r.source, r.source_dimension, r.source_line
    )


def _names(table: AxisTable, atoms: Atoms) -> str:
    return " and ".join(map(str, table.axes(atoms)))


def _factors(table: AxisTable, factors: tuple[Atoms, ...]) -> str:
    """``i over data, k over model``."""
    return ", ".join(f"{factor_name(n)} over {_names(table, a)}" for n, a in enumerate(factors) if a)
