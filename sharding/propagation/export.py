"""Export of a propagation's outcome: the original program with the shardings of its own instructions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.build import uncalled_computations
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees
from shardc.hlo.ir.sharding import AnySharding, AxisRef, Sharding
from shardc.hlo.stablehlo.writer import FunctionVersion
from shardc.sharding.axes.sub_axes import minus
from shardc.sharding.prepare.markers import enters_manual, is_edge, is_reshard
from shardc.sharding.prepare.split_calls import Copies
from shardc.sharding.propagation.graph import PropagationGraph, leaf_annotations
from shardc.sharding.propagation.op_priorities import OpClass
from shardc.sharding.propagation.options import PropagationOptions

__all__ = ["PropagationOutcome"]


@dataclass(frozen=True, slots=True)
class PropagationOutcome:
    """What propagation decided: ``shardings`` per value of ``graph``, which was made of ``prepared``, a form of
    ``module``. ``found`` are the values that got axes. ``found_shardings`` are the shardings before arguments and
    results lost those axes that do not divide.
    """

    module: Module
    prepared: Module
    copies: Copies
    graph: PropagationGraph
    shardings: Sequence[Sharding]
    found: Collection[int]
    options: PropagationOptions = field(default_factory=PropagationOptions)
    found_shardings: Sequence[Sharding] = ()

    def as_written(self, *, closed: bool = True, edges_sunk: bool = True) -> Module:
        """The module with a sharding on each instruction that had one or got one; others have none.

        Of the copies of an instruction the first counts. With ``closed`` dimensions are closed, with ``edges_sunk``
        values that a written data-flow edge names have their sharding on the operation itself, too.
        """
        places: dict[Instruction, Instruction] = {}
        for i in self.prepared.instructions():
            places.setdefault(self.copies.get(i, i), i)
        new: dict[Instruction, AnySharding] = {}
        for original, i in places.items():
            new[original] = self._sharding(i, closed, edges_sunk) if i in self.graph.values else original.sharding

        return _with_shardings(self.module, new)

    def versions(self, *, closed: bool = True) -> list[FunctionVersion]:
        """The entry and, for each call, the called function as that call sees it; equal ones are one.

        Copies are numbered, and come, callees first; functions that are not copied come callers first. Public
        functions that nobody calls come right behind the entry, the last one first.
        """
        return _Versions(self, closed).all()

    def rules(self) -> dict[str, str]:
        """The factor rules that were used, by name of the instruction."""
        out = {}
        for e in self.graph.equations:
            if not e.label and e.op_class not in (OpClass.EDGE, OpClass.BARRIER):
                out[self.copies.get(e.instruction, e.instruction).name] = str(e.rule)
        return out

    def added_constraints(self, *, closed: bool = True) -> dict[str, Sharding]:
        """Constraints that the program needs besides its own, by the name of the instruction that they follow."""
        out: dict[str, Sharding] = {}
        for member, view in self.graph.group_views.items():
            s = self._leaf(view, closed)
            if s is not None:
                origin = self.graph.origin[member][0]
                if enters_manual(origin):
                    origin = origin.operands[0]  # whose name stands for the value inside
                out[self.copies.get(origin, origin).name] = s
        return out

    def _sharding(self, i: Instruction, closed: bool, edges_sunk: bool) -> AnySharding:
        values = self.graph.values[i]
        given = leaf_annotations(i, len(values))
        leaves = tuple(
            self._leaf(v, closed) or _explicit_sharding(s, closed) for v, s in zip(values, given, strict=True)
        )
        if not edges_sunk and not is_edge(i):
            named = self.graph.edges
            leaves = tuple(None if v in named else s for v, s in zip(self.graph.values[i], leaves, strict=True))
            if any(v in self.graph.outside and self.graph.outside[v][0] in named for v in self.graph.values[i]):
                return i.sharding
        return leaves if i.shape.is_tuple else leaves[0] if leaves else None

    def _leaf(self, v: int, closed: bool) -> Sharding | None:
        if v in self.found or v in self.graph.outside:
            s = self.shardings[v]
        elif self.graph.annotated[v]:
            s = replace(self.shardings[v], mesh=self.graph.initial[v].mesh)  # under the name that was written
        else:
            return None
        return s if not closed else _close(s)


class _Versions:
    """Walks the calls of a program whose called computations have one call site each."""

    def __init__(self, outcome: PropagationOutcome, closed: bool) -> None:
        self.outcome = outcome
        self.closed = closed
        self.taken: set[str] = set()
        self.done: dict[Computation, str] = {}
        self.calls: dict[str, Instruction] = {}
        self.elements: dict[tuple[Instruction, int], str] = {}
        self.made: list[FunctionVersion] = []

    def all(self) -> list[FunctionVersion]:
        prepared = self.outcome.prepared
        others = uncalled_computations(prepared) if self.outcome.options.every_function else []
        self.taken.update(map(self.source, others))
        public = [self.version(c, self.source(c)) for c in reversed(others)]
        entry = prepared.entry
        shardings, callees = self.body(entry)
        reduced = self.partial_reshards(entry)
        main = FunctionVersion(entry.name, entry.name, (), (), shardings, callees, reduced=reduced, public=True)
        versions = _one_of_each([*public, main, *self.made])
        versions.insert(0, versions.pop(len(public)))
        return [self.around_calls(v, versions) for v in versions]

    def around_calls(self, version: FunctionVersion, versions: Sequence[FunctionVersion]) -> FunctionVersion:
        """Reshards where a call and the function disagree on operands or results."""
        by_name = {v.name: v for v in versions}
        shardings = dict(version.shardings)
        before: dict[str, tuple[Sharding | None, ...]] = {}
        behind: dict[str, Sharding] = {}
        for call, name in version.callees.items():
            callee, instruction = by_name[name], self.calls[call]
            operands = [v for o in instruction.operands for v in self.outcome.graph.values[o]]
            given = [self._leaf(v) for v in operands]
            pairs = zip(given, callee.arguments, operands, strict=True)
            if not self.outcome.options.share_functions:
                before[call] = tuple(None if _same_layout(s, w) else self.or_whole(w, s, v) for s, w, v in pairs)
            for (at, v), wanted in zip(self.results(instruction, call), callee.results, strict=True):
                own = self._leaf(v)
                if at and not _same_layout(own, wanted):
                    shardings[at] = self.or_whole(wanted, own, v)
                    behind[at] = self.or_whole(own, wanted, v)
        return replace(version, shardings=shardings, before=before, behind=behind)

    def _leaf(self, v: int) -> Sharding | None:
        return self.outcome._leaf(v, self.closed)

    def or_whole(self, wanted: Sharding | None, other: Sharding | None, v: int) -> Sharding:
        """``wanted``, or replicated over the mesh of the ``other``."""
        if wanted is not None or other is None:
            assert wanted is not None
            return wanted
        return Sharding.replicate(other.mesh, len(self.outcome.graph.dims[v]), closed=self.closed)

    def body(self, c: Computation) -> tuple[dict[str, AnySharding], dict[str, str]]:
        """What the instructions of a function have, and which versions it calls; regions are part of the function."""
        outcome = self.outcome
        shardings: dict[str, AnySharding] = {}
        callees: dict[str, str] = {}
        for i in c:
            original = outcome.copies.get(i, i)
            if i.opcode == "get-tuple-element":
                self.elements[i.operands[0], int(i.attrs["index"])] = original.name
            for inner in flow_computations(i):
                if i.opcode == "call":
                    self.calls[original.name] = i
                    if inner not in self.done:
                        self.done[inner] = self.function(inner)
                    callees[original.name] = self.done[inner]
                else:
                    own, calls = self.body(inner)
                    shardings |= own
                    callees |= calls
            if i in outcome.graph.values:
                shardings.setdefault(original.name, outcome._sharding(i, self.closed, True))
        return shardings, callees

    def partial_reshards(self, c: Computation) -> dict[str, tuple[tuple[AxisRef, ...], Sharding]]:
        """Reshards of partial values to whole ones: the axes to reduce over first, and the layout after that."""
        out = {}
        for i in c:
            if is_constraint(i) or is_reshard(i):
                values = self.outcome.graph.values
                own, operand = self._leaf(values[i][0]), self._leaf(values[i.operands[0]][0])
                if own is not None and operand is not None:
                    axes = minus(operand.unreduced, own.unreduced, operand.mesh)
                    rest = minus(operand.unreduced, axes, operand.mesh)
                    if axes:
                        out[self.outcome.copies.get(i, i).name] = axes, replace(operand, unreduced=rest)
        return out

    def results(self, call: Instruction, name: str) -> list[tuple[str, int]]:
        """The values that a call gives, with the names of the instructions that have them."""
        values = self.outcome.graph.values[call]
        if not call.shape.is_tuple:
            return [(name, values[0])]
        return [(self.elements.get((call, n), ""), v) for n, v in enumerate(values)]

    def source(self, c: Computation) -> str:
        """The name of a function in the program."""
        return str(self.outcome.copies.get(c, c).name).rpartition(".")[0]

    def function(self, c: Computation) -> str:
        """The name of the version that a call sees."""
        before = len(self.made)
        version = self.version(c)
        self.made.insert(before if self.outcome.options.share_functions else len(self.made), version)
        return version.name

    def version(self, c: Computation, public: str = "") -> FunctionVersion:
        """A function as it is seen; ``public`` is the name that it keeps."""
        outcome = self.outcome
        shardings, callees = self.body(c)
        source = self.source(c)
        values = outcome.graph.values
        returned = [c.root] if c.root.opcode != "tuple" else list(c.root.operands)
        inputs = [v for p in c.parameters for v in values[p]]
        given = [outcome._leaf(v, self.closed) for v in inputs]
        arguments = tuple(given) if public else self.complete(given, inputs)
        results = [outcome._leaf(v, self.closed) for o in returned for v in values[o]]
        reduced = self.partial_reshards(c)
        return FunctionVersion(
            public or self.name(source),
            source,
            arguments,
            tuple(results),
            shardings,
            callees,
            reduced=reduced,
            public=bool(public),
        )

    def complete(self, arguments: Sequence[Sharding | None], values: Sequence[int]) -> tuple[Sharding | None, ...]:
        """Where one argument has a sharding, all have."""
        found = next((s for s in arguments if s is not None), None)
        if found is None:
            return tuple(arguments)
        ranks = [len(self.outcome.graph.dims[v]) for v in values]
        plain = (Sharding.replicate(found.mesh, n, closed=self.closed) for n in ranks)
        return tuple(p if s is None else s for s, p in zip(arguments, plain, strict=True))

    def name(self, source: str) -> str:
        name, number = source, 0
        while name in self.taken:
            name, number = f"{source}_{number}", number + 1
        self.taken.add(name)
        return name


def _same_layout(a: Sharding | None, b: Sharding | None) -> bool:
    """Whether both lay a value out in the same way."""
    whole = [s is None or s.is_replicated for s in (a, b)]
    if any(whole) or a is None or b is None:
        return all(whole)
    return a.as_layout == b.as_layout


def _one_of_each(versions: Sequence[FunctionVersion]) -> list[FunctionVersion]:
    """Versions of a function that look the same from outside become the one that is called first."""
    by_name = {v.name: v for v in versions}
    first: dict[object, str] = {}
    for v in versions:
        for callee in map(by_name.__getitem__, v.callees.values()):
            first.setdefault((callee.source, callee.arguments, callee.results), callee.name)
    chosen = {v.name: first.get((v.source, v.arguments, v.results), v.name) for v in versions}
    out = [replace(v, callees={k: chosen[n] for k, n in v.callees.items()}) for v in versions]
    needed = {n for v in out for n in v.callees.values()} | {v.name for v in out if v.public}
    return [v for v in out if v.name in needed]


def _with_shardings(module: Module, shardings: Mapping[Instruction, AnySharding]) -> Module:
    """Every instruction stays, whether anybody reads it or not."""
    called: dict[Computation, Computation] = {}
    for c in module.computations:
        new: dict[Instruction, Instruction] = {}
        for i in c:
            attrs = map_callees(i.attrs, lambda k: called.get(k, k))
            operands = tuple(new[o] for o in i.operands)
            new[i] = i.replace(operands=operands, attrs=attrs, sharding=shardings.get(i))
        called[c] = Computation(c.name, new.values(), new[c.root])
    return module.with_(computations=tuple(called.values()), entry=called[module.entry])


def _explicit_sharding(given: object, closed: bool) -> Sharding | None:
    """What was written and is no value's own sharding (a member of a group that says nothing, for one)."""
    if not isinstance(given, Sharding):
        return None
    return _close(given) if closed else given


def _close(s: Sharding) -> Sharding:
    return replace(s, dims=s.as_layout.dims, replicated=())
