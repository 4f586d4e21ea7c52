"""The propagation graph: values (one per leaf) and the equations between them.

Every array operation is an equation: its factor rule over its operand and result values. Data-flow edges are
equations with an identity rule from all sources to the one value that stands for all targets: a loop's operand and
body root flow into the carry, which is the loop's result, its parameters and its value in the condition. Tuples and
get-tuple-element make no values of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shardc.hlo.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.mesh import Mesh
from shardc.hlo.opset import has_side_effect
from shardc.hlo.sharding import DimSharding, Sharding
from shardc.hlo.types import Shape
from shardc.sharding.axes import Axes
from shardc.sharding.factors import FactorRule
from shardc.sharding.prepare import flow_computations, is_constraint
from shardc.sharding.rules import factor_rule, is_data_flow
from shardc.sharding.rules.reshape import identity
from shardc.sharding.schedule import OpClass, classify

__all__ = ["Equation", "Graph", "build_graph"]


@dataclass(slots=True, eq=False)
class Equation:
    """One rule between values; ``label`` says what an edge is (empty for the operation itself)."""

    instruction: Instruction
    rule: FactorRule
    tensors: tuple[int, ...]
    op_class: OpClass
    label: str = ""
    several_uses: bool = False


@dataclass(slots=True)
class Graph:
    """``origin[v]`` is the (instruction, leaf) that value v stands for, ``initial[v]`` its sharding before
    propagation, ``annotated[v]`` whether that was given. ``values`` maps every instruction to its leaves' values.
    ``equations`` are in program order; ``results`` are the edges to the entry's results.
    """

    mesh: Mesh
    origin: list[tuple[Instruction, int]] = field(default_factory=list)
    initial: list[Sharding] = field(default_factory=list)
    annotated: list[bool] = field(default_factory=list)
    values: dict[Instruction, tuple[int, ...]] = field(default_factory=dict)
    equations: list[Equation] = field(default_factory=list)
    results: list[Equation] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    maker: list[int] = field(default_factory=list)


def build_graph(module: Module, mesh: Mesh) -> Graph:
    """The graph of a module whose called computations have one call site each (reducers are left out)."""
    builder = _Builder(Graph(mesh))
    builder.entry(module.entry)
    builder.link()
    return builder.graph


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.open: dict[int, Sharding] = {}
        self.uses: list[int] = []
        self.root: Instruction | None = None
        self.dead: set[Instruction] = set()

    def value(self, instruction: Instruction, leaf: int, shape: Shape, sharding: object = None) -> int:
        """A new value; without an annotation all its dimensions are open."""
        g = self.graph
        given = isinstance(sharding, Sharding) and sharding.rank == shape.rank
        if isinstance(sharding, Sharding) and given:
            g.initial.append(_without_single_positions(sharding, g.mesh))
        else:
            g.initial.append(self._open(shape.rank))
        g.annotated.append(given)
        g.origin.append((instruction, leaf))
        self.uses.append(0)
        return len(g.origin) - 1

    def _open(self, rank: int) -> Sharding:
        if rank not in self.open:
            self.open[rank] = Sharding(self.graph.mesh, (DimSharding((), closed=False),) * rank)
        return self.open[rank]

    def fresh(self, instruction: Instruction) -> tuple[int, ...]:
        """New values for all leaves, with the instruction's annotation."""
        leaves = list(instruction.shape.leaves())
        given = _annotation(instruction, len(leaves))
        return tuple(self.value(instruction, n, s, a) for n, (s, a) in enumerate(zip(leaves, given, strict=True)))

    def equation(
        self, i: Instruction, rule: FactorRule, tensors: Iterable[int], op_class: OpClass, label: str = ""
    ) -> None:
        self.graph.equations.append(Equation(i, rule, tuple(tensors), op_class, label))

    def edges(self, i: Instruction, sources: Sequence[Sequence[int]], targets: Sequence[int], label: str) -> None:
        """One identity equation per leaf from all ``sources`` to its target."""
        for leaf, target in enumerate(targets):
            dims = self._dims(target)
            for s in sources:
                self.uses[s[leaf]] += 1
            if dims:
                rule = identity(dims, len(sources))
                self.equation(i, rule, [*(s[leaf] for s in sources), target], OpClass.EDGE, label)

    def _dims(self, value: int) -> tuple[int, ...]:
        instruction, leaf = self.graph.origin[value]
        shape = instruction.shape
        return shape.dims if not shape.is_tuple else list(shape.leaves())[leaf].dims

    def entry(self, entry: Computation) -> None:
        parameters = {p: self.fresh(p) for p in entry.parameters}
        self.root = entry.root
        self.computation(entry, parameters)
        root = entry.root
        if root.opcode != "tuple":
            return
        sources = self.graph.values[root]
        targets = self.fresh(root)
        before = len(self.graph.equations)
        self.edges(root, [sources], targets, "result")
        self.graph.results = self.graph.equations[before:]
        del self.graph.equations[before:]
        self.graph.values[root] = targets

    def computation(self, c: Computation, parameters: dict[Instruction, tuple[int, ...]]) -> tuple[int, ...]:
        values = self.graph.values
        self.dead.update(_dead(c))
        values.update(parameters)
        for i in c:
            if i not in values:
                values[i] = self.instruction(i, [values[o] for o in i.operands])
        return values[c.root]

    def instruction(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        if not is_data_flow(i.opcode):
            return self.operation(i, operands)
        handler = {
            "tuple": self.tuple_,
            "get-tuple-element": self.element,
            "while": self.while_,
            "conditional": self.conditional,
            "call": self.call,
            "fusion": self.call,
        }.get(i.opcode, self.barrier)
        return handler(i, operands)

    def operation(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        results = self.fresh(i)
        if i in self.dead:
            return results
        flat = [v for leaves in operands for v in leaves]
        for v in flat:
            self.uses[v] += 1
        rule = factor_rule(i)
        if any(not f.blocked for f in rule.factors) and len(flat) + len(results) > 1:
            self.equation(i, rule, [*flat, *results], classify(i))
        return results

    def tuple_(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        sources = tuple(v for leaves in operands for v in leaves)
        return sources if i is self.root else self._renamed(i, sources)

    def element(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        elements = i.operands[0].shape.elements
        index = int(i.attrs["index"])
        start = sum(len(list(e.leaves())) for e in elements[:index])
        return self._renamed(i, operands[0][start : start + len(list(elements[index].leaves()))])

    def _renamed(self, i: Instruction, sources: tuple[int, ...]) -> tuple[int, ...]:
        """The same values, or new ones behind an edge where the instruction has an annotation of its own."""
        shapes = list(i.shape.leaves())
        given = _annotation(i, len(shapes))
        out = list(sources)
        for n, annotation in enumerate(given):
            if isinstance(annotation, Sharding) and annotation.rank:
                out[n] = self.value(i, n, shapes[n], annotation)
                self.edges(i, [[sources[n]]], [out[n]], "annotated")
        return tuple(out)

    def barrier(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        targets = self.fresh(i)
        if operands and len(operands[0]) == len(targets):
            self.edges(i, [operands[0]], targets, i.opcode)
        return targets

    def while_(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        carry = self.fresh(i)
        condition, body = i.attrs["condition"], i.attrs["body"]
        self.computation(condition, {condition.parameters[0]: carry})
        root = self.computation(body, {body.parameters[0]: carry})
        self.edges(i, [operands[0], root], carry, "loop carry")
        self._root_is(body, carry)
        return carry

    def conditional(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        roots = []
        targets = self.fresh(i)
        branches = [c for _, c in called_computations(i)]
        for branch, operand in zip(branches, operands[1:], strict=True):
            inner = {branch.parameters[0]: operand} if branch.parameters else {}
            roots.append(self.computation(branch, inner))
        self.edges(i, roots, targets, "branch result")
        for branch in branches:
            self._root_is(branch, targets)
        return targets

    def call(self, i: Instruction, operands: list[tuple[int, ...]]) -> tuple[int, ...]:
        callee = next(c for _, c in called_computations(i))
        parameters: dict[Instruction, tuple[int, ...]] = {}
        for p, operand in zip(callee.parameters, operands, strict=True):
            parameters[p] = self.fresh(p)
            self.edges(p, [operand], parameters[p], "argument")
        root = self.computation(callee, parameters)
        targets = self.fresh(i)
        self.edges(i, [root], targets, "call result")
        self._root_is(callee, targets)
        return targets

    def _root_is(self, c: Computation, targets: tuple[int, ...]) -> None:
        """A tuple at the end of a called computation takes the shardings that its caller wants."""
        if c.root.opcode == "tuple":
            self.graph.values[c.root] = targets

    def link(self) -> None:
        """Which equations read and make each value, and which operations read something that others read too."""
        g = self.graph
        g.users = [[] for _ in g.origin]
        g.maker = [-1] * len(g.origin)
        for n, e in enumerate(g.equations):
            operands = e.tensors[: len(e.rule.operands)]
            for v in operands:
                if not g.users[v] or g.users[v][-1] != n:
                    g.users[v].append(n)
            for v in e.tensors[len(operands) :]:
                g.maker[v] = n
            if e.op_class is not OpClass.EDGE:
                e.several_uses = any(self.uses[v] > 1 and g.initial[v].rank for v in operands)


def _without_single_positions(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Axes of size 1 split nothing: they are left out. A value on one device only is taken to be everywhere."""
    if sharding.mesh.is_maximal:
        return Sharding.replicate(mesh, sharding.rank)
    if all(size > 1 for _, size in mesh.axes):
        return sharding
    dims = tuple(replace(d, axes=_split(d.axes, mesh)) for d in sharding.dims)
    return replace(
        sharding, dims=dims, replicated=_split(sharding.replicated, mesh), unreduced=_split(sharding.unreduced, mesh)
    )


def _split(axes: Axes, mesh: Mesh) -> Axes:
    return tuple(a for a in axes if a.extent(mesh) > 1)


def _dead(c: Computation) -> set[Instruction]:
    """What nobody reads: it must not decide how live values lie. A constraint counts although nobody reads it."""
    live: set[Instruction] = {c.root}
    for i in reversed(c.instructions):
        if i in live or has_side_effect(i) or flow_computations(i) or is_constraint(i):
            live.add(i)
            live.update(i.operands)
    return {i for i in c if i not in live}


def _annotation(i: Instruction, leaves: int) -> Sequence[object]:
    if isinstance(i.sharding, tuple):
        return i.sharding if len(i.sharding) == leaves else (None,) * leaves
    return (i.sharding,) * leaves
