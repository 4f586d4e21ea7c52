"""The propagation graph: values (one per leaf) and the equations between them.

Every array operation is an equation: its factor rule over its operand and result values. Data-flow edges are equations
with an identity rule from all sources to the one value that stands for all targets; `shardc.sharding.propagation.flow`
makes those. Tuples and get-tuple-element make no values of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Computation, Instruction, flow_computations, has_side_effect
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.sharding.prepare.manual import Border
from shardc.sharding.propagation.op_priorities import OpClass
from shardc.sharding.rules.factor_rule import Direction, FactorRule
from shardc.sharding.rules.reshape import identity_rule

__all__ = [
    "ARGUMENT",
    "NOWHERE",
    "Equation",
    "LoopReaders",
    "PropagationGraph",
    "Values",
    "dead_instructions",
    "leaf_annotations",
]

#: The mesh of a value that has no sharding yet.
NOWHERE = Mesh(name="")

#: The label of an edge into a called computation.
ARGUMENT = "argument"

#: The values of an instruction's leaves.
Values = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Equation:
    """One rule between values; ``label`` says what an edge is (empty for the operation itself).

    ``direction`` is where a propagation barrier lets axes pass, ``border`` the manual computation that an edge
    enters or leaves.
    """

    instruction: Instruction
    rule: FactorRule
    tensors: tuple[int, ...]
    op_class: OpClass
    label: str = ""
    several_uses: bool = False
    direction: Direction = Direction.BOTH
    border: Border | None = None

    @property
    def via(self) -> str:
        """``dot %dot.3``, ``loop carry %while.1``."""
        return f"{self.label or self.instruction.opcode} %{self.instruction.name}"


@dataclass(frozen=True, slots=True)
class LoopReaders:
    """What reads a carry inside its loop: the number of the body's first equation, the readers in the condition and
    in the body."""

    body: int
    condition_uses: int
    body_uses: int


@dataclass(slots=True)
class PropagationGraph:
    """``origin[v]`` is the (instruction, leaf) that value v stands for, ``dims[v]`` its dimensions, ``initial[v]`` its
    sharding before propagation, ``annotated[v]`` whether that was given. ``values`` maps every instruction to its
    leaves' values. ``equations`` are in program order; ``results`` are the edges to the entry's results. ``uses``
    counts the readers of each value; those in ``edges`` are named by a written data-flow edge. ``outside`` maps the
    whole value that enters a manual computation to the value inside and the border between them, ``group_views`` a
    member of a sharding group to what its readers see of it, where that is not the member itself. ``loops`` says
    more of a loop's carry, of which ``uses`` counts the readers outside. The readers of values in ``last_first`` hear
    of a change in the opposite of program order, as Shardy's do.
    """

    mesh: Mesh
    origin: list[tuple[Instruction, int]] = field(default_factory=list)
    initial: list[Sharding] = field(default_factory=list)
    annotated: list[bool] = field(default_factory=list)
    dims: list[tuple[int, ...]] = field(default_factory=list)
    values: dict[Instruction, Values] = field(default_factory=dict)
    equations: list[Equation] = field(default_factory=list)
    results: list[Equation] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    makers: list[list[int]] = field(default_factory=list)
    edges: set[int] = field(default_factory=set)
    groups: dict[str, list[int]] = field(default_factory=dict)
    outside: dict[int, tuple[int, Border]] = field(default_factory=dict)
    group_views: dict[int, int] = field(default_factory=dict)
    loops: dict[int, LoopReaders] = field(default_factory=dict)
    last_first: set[int] = field(default_factory=set)
    _open: dict[int, Sharding] = field(default_factory=dict)

    def add_value(self, instruction: Instruction, leaf: int, shape: Shape, sharding: object = None) -> int:
        """A new value; without an annotation all its dimensions are open."""
        own = _of_rank(sharding, shape.rank) if isinstance(sharding, Sharding) else None
        given = own is not None and own.rank == shape.rank
        self.initial.append(own if own is not None and given else self.unset(shape.rank))
        self.annotated.append(given)
        self.origin.append((instruction, leaf))
        self.dims.append(shape.dims)
        self.uses.append(0)
        return len(self.origin) - 1

    def annotate(self, value: int, sharding: Sharding) -> None:
        """Give a value its sharding after it was made."""
        self.initial[value] = _of_rank(sharding, len(self.dims[value]))
        self.annotated[value] = True

    def unset(self, rank: int) -> Sharding:
        """The sharding of a value that has none."""
        if rank not in self._open:
            self._open[rank] = Sharding(NOWHERE, (DimSharding((), closed=False),) * rank)
        return self._open[rank]

    def add_values(self, instruction: Instruction) -> Values:
        """New values for all leaves, with the instruction's annotation."""
        leaves = list(instruction.shape.leaves())
        given = leaf_annotations(instruction, len(leaves))
        return tuple(self.add_value(instruction, n, s, a) for n, (s, a) in enumerate(zip(leaves, given, strict=True)))

    def add_equation(
        self,
        i: Instruction,
        rule: FactorRule,
        tensors: Iterable[int],
        op_class: OpClass,
        label: str = "",
        *,
        direction: Direction = Direction.BOTH,
        border: Border | None = None,
    ) -> None:
        equation = Equation(i, rule, tuple(tensors), op_class, label, direction=direction, border=border)
        self.equations.append(equation)

    def add_edge(
        self, i: Instruction, sources: Sequence[int], target: int, label: str, border: Border | None = None
    ) -> None:
        """An identity equation from all ``sources`` to ``target``."""
        for s in sources:
            self.uses[s] += 1
        dims = self.dims[target]
        if dims:
            rule = identity_rule(dims, len(sources))
            self.add_equation(i, rule, (*sources, target), OpClass.EDGE, label, border=border)

    def add_edges(self, i: Instruction, sources: Sequence[Values], targets: Values, label: str) -> None:
        """One edge per leaf."""
        for leaf, target in enumerate(targets):
            self.add_edge(i, [s[leaf] for s in sources], target, label)

    def link(self) -> None:
        """Which equations read and make each value, and which operations read something that others read too."""
        self.users = [[] for _ in self.origin]
        self.makers = [[] for _ in self.origin]
        for n, e in enumerate(self.equations):
            operands = e.tensors[: len(e.rule.operands)]
            for v in operands:
                if not self.users[v] or self.users[v][-1] != n:
                    self.users[v].append(n)
            for v in e.tensors[len(operands) :]:
                self.makers[v].append(n)
        for n, e in enumerate(self.equations):
            operands = e.tensors[: len(e.rule.operands)]
            if e.op_class is not OpClass.EDGE:
                e.several_uses = any(self.initial[v].rank and self._uses_beside(v, n) > 1 for v in operands)

    def start_counting(self, values: Sequence[int]) -> list[int]:
        """How often values were read until now, and no more."""
        counts = [self.uses[v] for v in values]
        for v in values:
            self.uses[v] = 0
        return counts

    def _uses_beside(self, v: int, n: int) -> int:
        """How many read the value that equation ``n`` reads: a carry is another value inside its loop."""
        loop = self.loops.get(v)
        if loop is None or (self.makers[v] and n > self.makers[v][0]):
            return self.uses[v]
        return loop.condition_uses if n < loop.body else loop.body_uses

    def near(self, v: int) -> list[int]:
        """The equations that a change of ``v`` concerns; the last comes first.

        The readers in program order, calls last, then the maker, then readers inside a loop, its body before its
        condition: the order matters where shardings are in conflict, and is that of Shardy's work list.
        """
        makers, users = self.makers[v], self.users[v]
        loop = self.loops.get(v)
        if loop is None and v not in self.last_first:
            into_calls = [n for n in users if self.equations[n].label == ARGUMENT]
            others = [n for n in users if n not in into_calls] if into_calls else users
            return [*makers, *reversed(into_calls), *reversed(others)]
        maker = makers[0] if makers else -1
        body = loop.body if loop is not None else 0
        condition = [n for n in users if n < body]
        inside = [n for n in users if body <= n < maker]
        outside = [n for n in users if n > maker]
        after = outside if v in self.last_first else reversed(outside)
        return [*reversed(condition), *reversed(inside), *makers, *after]

    def without_single_positions(self) -> None:
        """Axes of size 1 split nothing: leave them out of what was given."""
        for v, sharding in enumerate(self.initial):
            self.initial[v] = _without_single_positions(sharding)


def leaf_annotations(i: Instruction, leaves: int) -> Sequence[object]:
    """What is written on an instruction, per leaf."""
    if isinstance(i.sharding, tuple):
        return i.sharding if len(i.sharding) == leaves else (None,) * leaves
    return (i.sharding,) * leaves


def _of_rank(sharding: Sharding, rank: int) -> Sharding:
    """What puts a value on one device says nothing of dimensions: they are closed."""
    if not sharding.mesh.is_maximal or sharding.rank == rank:
        return sharding
    return replace(sharding, dims=(DimSharding(),) * rank)


def dead_instructions(c: Computation) -> set[Instruction]:
    """What nobody reads: it must not decide how live values lie. A constraint counts although nobody reads it."""
    live: set[Instruction] = {c.root}
    for i in reversed(c.instructions):
        if i in live or has_side_effect(i) or flow_computations(i) or is_constraint(i):
            live.add(i)
            live.update(i.operands)
    return {i for i in c if i not in live}


def _without_single_positions(sharding: Sharding) -> Sharding:
    mesh = sharding.mesh
    if all(size > 1 for _, size in mesh.axes):
        return sharding

    def split(axes: tuple[AxisRef, ...]) -> tuple[AxisRef, ...]:
        return tuple(a for a in axes if a.extent(mesh) > 1)

    dims = []
    for d in sharding.dims:
        axes = split(d.axes)
        dims.append(replace(d, axes=axes, priority=0 if d.closed and not axes else d.priority))
    return replace(
        sharding, dims=tuple(dims), replicated=split(sharding.replicated), unreduced=split(sharding.unreduced)
    )
