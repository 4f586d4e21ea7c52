"""Annotations that might remove a collective, made from its story; each is worth nothing until it was tried.

Whatever has a say about the axes that move is asked: the annotations they came from, the moved value, the operation
that wants it otherwise, and what was contracted. Each may split another dimension over them, keep the dimension whole,
take them on, or be left open. What is one value in many places (a parameter, its moments, its update) changes together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.explain.chains import CauseTracer
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import AxisRef, DimSharding
from shardc.partitioner.strategy.cause import Cause
from shardc.sharding.axes.sub_axes import overlaps
from shardc.sharding.notations.names import match_names, pattern_of
from shardc.sharding.notations.partition_spec import dims_text
from shardc.sharding.provenance.history import Provenance

__all__ = ["AnnotatableNames", "AnnotationCandidate", "AnnotationCandidates", "merged", "spec_text"]

#: (name, spec) of an annotation.
Spec = tuple[str, str]


@dataclass(frozen=True, slots=True)
class AnnotationCandidate:
    """Annotations to try together; lower ``rank`` first. ``before`` is how the values are annotated or lie now."""

    rank: int
    what: str
    specs: tuple[Spec, ...]
    before: str


@dataclass(frozen=True, slots=True)
class _Edit:
    rank: int
    what: str
    dims: tuple[DimSharding, ...]


def spec_text(dims: Sequence[DimSharding]) -> str:
    """As ``--annotate`` takes it: ``data+model,None,?``."""
    return dims_text(dims) or "None"


class AnnotatableNames:
    """What values can be annotated by, and which of them are one value in several places."""

    def __init__(self, history: Provenance, module: Module) -> None:
        self.history = history
        given = module.result_names
        self.results = {
            (module.entry.root.name, n): (given[n] if n < len(given) else "") or f"out{n}"
            for n in range(len(module.results))
        }
        named = [*module.arg_names, *[""] * len(module.parameters)]
        self.arguments = {p.name: named[k] or f"arg{k}" for k, p in enumerate(module.parameters)}
        self._parent: dict[int, int] = {}
        self._join()
        graph = history.graph
        places = enumerate(graph.origin)
        outer = [v for v, (i, _) in places if i.opcode in ("parameter", "tuple") and graph.annotated[v]]
        self._border = [v for v in outer if self.of(v) is not None]
        places = enumerate(graph.origin)
        self._values = {n: v for v, (i, _) in places if i.opcode == "parameter" and (n := self.of(v)) is not None}
        self._ends = [e.tensors[-1] for e in graph.results]

    def of(self, value: int) -> str | None:
        """The name of a value for ``--annotate``; None for what has none."""
        instruction, leaf = self.history.graph.origin[value]
        name = instruction.name
        if instruction.opcode == "parameter":
            return self.arguments.get(name)
        if (name, leaf) in self.results and instruction.opcode == "tuple":
            return self.results[name, leaf]
        return None if instruction.shape.is_tuple else name

    def family(self, value: int) -> list[int]:
        """Arguments and results that are this value at other times, and annotated alike; the value itself first."""
        graph, root = self.history.graph, self._find(value)
        alike = (v for v in self._border if graph.initial[v].dims == graph.initial[value].dims)
        return [value, *(v for v in alike if v != value and self._find(v) == root)]

    def kin(self, value: int) -> list[int]:
        """The families of all arguments that are called alike but for numbers, and annotated alike: equal layers'."""
        graph, name = self.history.graph, pattern_of(self.of(value) or "")
        if is_constraint(graph.origin[value][0]):
            return self._of_one_line(value)
        out = dict.fromkeys(self.family(value))
        for v in self._border if name else ():
            same = graph.dims[v] == graph.dims[value] and graph.initial[v].dims == graph.initial[value].dims
            if same and v not in out and pattern_of(self.of(v) or "") == name:
                out |= dict.fromkeys(self.family(v))
        return list(out)

    def _of_one_line(self, value: int) -> list[int]:
        """The constraints that a line of the source has made, alike: of a step's values, of their gradients."""
        graph = self.history.graph
        own = graph.origin[value][0]
        alike = [value]
        for v, (i, _) in enumerate(graph.origin):
            same = i.source == own.source and graph.dims[v] == graph.dims[value]
            if v != value and same and is_constraint(i) and graph.initial[v].dims == graph.initial[value].dims:
                alike.append(v)
        return alike if own.source else [value]

    def short(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """Annotations with names that differ in numbers alone said by a glob, where it matches no other name."""
        alike: dict[tuple[str, str], list[str]] = {}
        for name, spec in specs:
            alike.setdefault((pattern_of(name), spec), []).append(name)
        out: list[Spec] = []
        for (_, spec), names in alike.items():
            glob = _glob(names)
            table = self.arguments.values() if names[0] in self.arguments.values() else self.results.values()
            fits = len(names) > 1 and set(match_names(glob, table)) == set(names)
            out += [(glob, spec)] if fits else [(n, spec) for n in names]
        return tuple(out)

    def argument(self, name: str) -> int | None:
        """The value of an argument."""
        return self._values.get(name)

    def arguments_values(self) -> list[int]:
        """The values of all arguments."""
        return list(self._values.values())

    def is_returned(self, value: int) -> bool:
        """Whether the value is also a result, at another time."""
        root = self._find(value)
        return any(
            self._find(v) == root and self.history.graph.dims[v] == self.history.graph.dims[value] for v in self._ends
        )

    def _join(self) -> None:
        graph = self.history.graph
        for e in (*graph.equations, *graph.results):
            opcode = e.instruction.opcode
            same = bool(e.label) or opcode in ("custom-call", "tuple") or OPS[opcode].family == "elementwise"
            if not same:
                continue
            first = e.tensors[-1]
            for v in e.tensors:
                if graph.dims[v] == graph.dims[first] and graph.dims[v]:
                    self._parent[self._find(v)] = self._find(first)

    def _find(self, v: int) -> int:
        while (up := self._parent.get(v, v)) != v:
            self._parent[v] = self._parent.get(up, up)
            v = up
        return v


class AnnotationCandidates:
    """What to try against a cause."""

    def __init__(self, tracer: CauseTracer, names: AnnotatableNames) -> None:
        self.tracer = tracer
        self.history = tracer.history
        self.names = names

    def of(self, cause: Cause) -> list[AnnotationCandidate]:
        """Candidates, the likeliest first, each once."""
        found: dict[tuple[Spec, ...], AnnotationCandidate] = {}
        for value, edit in self._edits(cause):
            for number, members in enumerate(self._together(value)):
                candidate = self._candidate(replace(edit, rank=edit.rank + 10 * number), members)
                if candidate is not None and candidate.specs not in found:
                    found[candidate.specs] = candidate
        return sorted(found.values(), key=lambda c: c.rank)

    def taking_on(self, value: int, axis: AxisRef) -> list[AnnotationCandidate]:
        """An argument, and all alike, split over an axis that it lacks: a candidate per dimension."""
        made = (self._candidate(edit, self.names.kin(v)) for v, edit in self._taking_on(value, (axis,), 0))
        return [c for c in made if c is not None]

    def arguments_over(self, axis: AxisRef) -> list[AnnotationCandidate]:
        """Arguments split over an axis, the largest first, dimension by dimension."""
        graph = self.history.graph
        values = sorted(self.names.arguments_values(), key=lambda v: -math.prod(graph.dims[v]))
        found: dict[tuple[Spec, ...], AnnotationCandidate] = {}
        for v in values:
            for c in self.taking_on(v, axis):
                found.setdefault(c.specs, c)
        return sorted(found.values(), key=lambda c: c.rank)

    def _together(self, value: int) -> Iterator[list[int]]:
        """Values to annotate alike: those of equal layers; all places of a value; or it alone, if none is a result."""
        if not self.history.graph.annotated[value]:
            yield [value]
            return
        family = self.names.family(value)
        kin = self.names.kin(value)
        yield kin
        if len(kin) > len(family):
            yield family
        if len(family) > 1 and not any(self.history.graph.origin[v][0].opcode == "tuple" for v in family):
            yield [value]

    def _candidate(self, edit: _Edit, members: Sequence[int]) -> AnnotationCandidate | None:
        specs: dict[str, Spec] = {}
        before = spec_text(self._present(members[0]))
        for v in members:
            name = self.names.of(v)
            if name is None:
                return None
            specs[name] = (name, spec_text(edit.dims))
        more = f", and {len(specs) - 1} more in the same way" if len(specs) > 1 else ""
        origin = self.history.graph.origin[members[0]][0]
        more += f" (the constraint at {origin.source})" if origin.source and is_constraint(origin) else ""
        return AnnotationCandidate(edit.rank, edit.what + more, self.names.short(list(specs.values())), before)

    def _present(self, value: int) -> tuple[DimSharding, ...]:
        """How a value is annotated, or else lies."""
        graph = self.history.graph
        if graph.annotated[value]:
            return tuple(replace(d, priority=0) for d in graph.initial[value].dims)
        return self.history.shardings[value].as_layout.dims

    # -- edits -----------------------------------------------------------------------------------------------

    def _edits(self, cause: Cause) -> Iterator[tuple[int, _Edit]]:
        axes = self._axes(cause)
        for place in self.tracer.places(cause):
            for axis in place.axes:
                root = self.tracer.root(place, axis)
                if root is not None:
                    yield from self._at_root(self.history.annotation_source(root[0]), root[1], (axis,), place.role)
            if not place.axes:
                yield from self._taking_on(place.value, axes, 2, place.dimension)
            if self.history.graph.annotated[place.value]:
                yield from self._opened(self.history.annotation_source(place.value))
        yield from self._of_value(cause, axes)
        for value in self._arguments_near(cause):
            yield from self._taking_on(value, axes, 4)

    def _at_root(self, value: int, dim: int, axes: tuple[AxisRef, ...], role: str) -> Iterator[tuple[int, _Edit]]:
        """An annotation with axes on another dimension, or without them."""
        name, dims = self.names.of(value), self._present(value)
        text = "+".join(map(str, axes))
        without = self._without(dims, axes)
        rank = 0 if role != "moved" else 1
        for e in range(len(dims)):
            if e != dim and (moved := self._with(value, without, e, axes)) is not None:
                what = f"split dimension {e} of {name} over {text} instead of dimension {dim}"
                yield value, _Edit(rank, what, moved)
        yield value, _Edit(5, f"keep dimension {dim} of {name} whole instead of split over {text}", without)

    def _taking_on(
        self, value: int, axes: tuple[AxisRef, ...], rank: int, first: int | None = None
    ) -> Iterator[tuple[int, _Edit]]:
        """A value that lacks the axes gets them."""
        dims, mesh = self._present(value), self.history.graph.mesh
        if any(overlaps(a, b, mesh) for d in dims for a in d.axes for b in axes):
            return
        for e in range(len(dims)):
            more = self._with(value, dims, e, axes)
            if more is not None:
                what = f"split dimension {e} of {self.names.of(value)} over {'+'.join(map(str, axes))}"
                yield value, _Edit(rank if first in (None, e) else rank + 1, what, more)

    def _opened(self, value: int) -> Iterator[tuple[int, _Edit]]:
        """A closed annotation that lets propagation add axes."""
        dims = self._present(value)
        loose = tuple(replace(d, closed=d.closed and bool(d.axes)) for d in dims)
        if loose != dims:
            yield value, _Edit(3, f"leave the whole dimensions of {self.names.of(value)} open", loose)

    def _of_value(self, cause: Cause, axes: tuple[AxisRef, ...]) -> Iterator[tuple[int, _Edit]]:
        """The moved value itself laid out as it is wanted, or a partial one split where it is made."""
        value, table = self.tracer.moved(cause), cause.table
        if value is None:
            return
        name = self.names.of(value)
        wanted = table.to_sharding(table.reduced(cause.after)).as_layout.dims
        if wanted != self._present(value):
            yield value, _Edit(2, f"give {name} the layout {spec_text(wanted)} where it is computed", wanted)
        lies = table.to_sharding(table.reduced(cause.before)).as_layout.dims
        if cause.before.unreduced:
            for e in range(len(lies)):
                more = self._with(value, lies, e, axes)
                if more is not None:
                    yield value, _Edit(1, f"split dimension {e} of {name} over {'+'.join(map(str, axes))}", more)
        reader = self._wanting(cause)
        if reader is not None and lies != self._present(reader):
            yield reader, _Edit(1, f"keep the computed layout of {self.names.of(reader)}, {spec_text(lies)}", lies)

    def _wanting(self, cause: Cause) -> int | None:
        """The result, constraint or carry that wants the value otherwise."""
        against = [p for p in self.tracer.places(cause) if p.role == "against"]
        return against[0].value if cause.asked is None and against else None

    def _arguments_near(self, cause: Cause) -> Iterator[int]:
        """Arguments that the operations concerned read, moved or cut at most."""
        graph = self.history.graph
        by_label = {n: graph.values[i][0] for i, n in self.history.labels.items() if len(graph.values[i]) == 1}
        for decided in (cause.asked, cause.made):
            for operand in decided.op.operands if decided is not None else ():
                value = self.tracer.number(operand.name)
                argument = self.tracer.argument_behind(value) if value is not None else None
                if argument is not None and argument in by_label:
                    yield by_label[argument]

    # -- dimensions ------------------------------------------------------------------------------------------

    def _axes(self, cause: Cause) -> tuple[AxisRef, ...]:
        """Axes that move or are added over."""
        table = cause.table
        pairs = zip(cause.before.dims, cause.after.dims, strict=True)
        gone = {a for old, new in pairs for a in old if a not in new}
        moving = tuple(sorted({*gone, *(a for a in cause.before.unreduced if a not in cause.after.unreduced)}))
        return table.axes(moving)

    def _without(self, dims: tuple[DimSharding, ...], axes: tuple[AxisRef, ...]) -> tuple[DimSharding, ...]:
        mesh = self.history.graph.mesh
        return tuple(
            replace(d, axes=tuple(a for a in d.axes if not any(overlaps(a, b, mesh) for b in axes))) for d in dims
        )

    def _with(
        self, value: int, dims: tuple[DimSharding, ...], at: int, axes: tuple[AxisRef, ...]
    ) -> tuple[DimSharding, ...] | None:
        """``dims`` with axes on dimension ``at`` too, where its size allows."""
        mesh, sizes = self.history.graph.mesh, self.history.graph.dims[value]
        more = replace(dims[at], axes=(*dims[at].axes, *axes))
        if at >= len(sizes) or sizes[at] % max(more.extent(mesh), 1):
            return None
        return (*dims[:at], more, *dims[at + 1 :])


def merged(members: Sequence[Sequence[AnnotationCandidate]]) -> list[AnnotationCandidate]:
    """Candidates of equal collectives, made into one for all of them: the first with the first, and so on."""
    first, *others = members
    out: dict[tuple[Spec, ...], AnnotationCandidate] = {}
    for n, candidate in enumerate(first):
        same = [c[n] for c in others if n < len(c) and c[n].rank == candidate.rank]
        specs = tuple(dict.fromkeys(spec for c in (candidate, *same) for spec in c.specs))
        more = (
            f", and {len(specs) - len(candidate.specs)} more in the same way"
            if len(specs) > len(candidate.specs)
            else ""
        )
        out.setdefault(specs, replace(candidate, what=candidate.what + more, specs=specs))
    return list(out.values())


def _glob(names: Sequence[str]) -> str:
    """A glob for names of one pattern: a star for each number in which they differ."""
    parts = [re.split(r"(\d+)", n) for n in names]
    return "".join(p[0] if len(set(p)) == 1 else "*" for p in zip(*parts, strict=True))
