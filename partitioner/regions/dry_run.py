"""A dry run of the rewriting: it decides operation by operation, and records what it would send instead of writing.

What it leaves is the graph of `region_graph`: every operation with the strategy that it takes by itself, every value
with its readers. Loop carries, arguments and results of computations that are called once become nodes of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardc.costs.ops.contraction import product_rate
from shardc.costs.ops.op_cost import MOVES
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import Shape, array_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.emit.names import NameSupply
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.regions.decision_graph import DecisionGraph
from shardc.partitioner.regions.region_graph import DecisionNode, OpStrategy, WireReader
from shardc.partitioner.rewrite.body import Body
from shardc.partitioner.rewrite.context import CalleeSignature, Context
from shardc.partitioner.rules.control import want_reduced
from shardc.partitioner.strategy.choose import SplitChoice, SplitProblem
from shardc.partitioner.strategy.pieces import find_pieces_read
from shardc.partitioner.strategy.rule import Local, PartitionRow
from shardc.partitioner.strategy.values import REDUCIBLE_LATER, GlobalValue, Tree, leaves

__all__ = ["build_decision_graph"]

#: Operations whose work may grow when that saves moves: they read each element once and compute next to nothing.
_LIGHT = frozenset(("elementwise", "shape", "indexing", "control", "collective"))
#: Stands for what is not written.
_NOTHING = Instruction("constant", array_shape("pred"))


def build_decision_graph(
    context: Context,
    rules: Mapping[str, PartitionRow],
    module: Module,
    parameters: Sequence[tuple[AxisLayout, ...]],
    *,
    free_barriers: bool = False,
    interface: FreeInterface | None = None,
) -> DecisionGraph:
    """The graph of a module whose entry takes ``parameters`` and gives its root in its propagated layouts, but for the
    leaves of a free ``interface``, which may lie in any, or in one of two."""
    root, given = module.entry.root, [x for p in parameters for x in p]
    interface = interface or FreeInterface()
    if root.opcode in _BORDERS:
        interface = replace(interface, results=frozenset())
    if root.opcode == "parameter":
        first = sum(map(len, parameters[: root.attrs["index"]]))
        ties = tuple((first + n, n) for n in range(len(parameters[root.attrs["index"]])))
        interface = replace(interface, ties=ties)
    interface, given, results = interface.settle(given, context.layouts(root))
    graph = DecisionGraph(context, rules, module, free_barriers=free_barriers, interface=interface)
    graph.given, graph.wanted, leaf = given, results, iter(given)
    body = DryRun(graph, module.entry, [tuple(itertools.islice(leaf, len(p))) for p in parameters])
    for n, (value, layout) in enumerate(zip(body.run(results), results, strict=True)):
        body.leave(n, value, layout)
    return graph


class DryRun(Body):
    """`Body` without emitting anything.

    ``incoming`` are the nodes that give the leaves of each parameter; ``still`` the leaves of a loop's state that never
    change (None: it is no loop's, and all change as often as outside).
    """

    def __init__(
        self,
        graph: DecisionGraph,
        computation: Computation,
        parameters: Sequence[tuple[AxisLayout, ...]],
        incoming: Sequence[Sequence[DecisionNode]] | None = None,
        still: frozenset[int] | None = None,
    ) -> None:
        context = graph.context
        super().__init__(context, graph.rules, computation, parameters)
        self.em = Emitter(context.table, context.reducers, NameSupply())
        self.graph = graph
        self.incoming = incoming
        self.times = float(graph.counts.get(computation, 1))
        self.alone = computation in graph.once
        self.still = still

    def run(self, results: Sequence[AxisLayout]) -> list[GlobalValue]:
        """Walk; the leaves of the root."""
        self.walk(results)
        return list(leaves(self.values[self.computation.root]))

    def visit(self, op: Instruction) -> None:
        graph, special, known = self.graph, _BORDERS.get(op.opcode), len(self.graph.wires)
        if special is None:
            super().visit(op)
            tree = self.values[op]
            if (isinstance(tree, GlobalValue) and tree not in graph.wire_of) or op.shape.is_tuple:
                self._wires(op, tree)
        else:
            self.values[op] = special(self, op)
        if self.alone and len(graph.wires) > known:
            graph.places.update((graph.wire_of[v], (op, n)) for n, v in enumerate(leaves(self.values[op])))

    def _wires(self, op: Instruction, tree: Tree) -> None:
        """Wires for values that an operation of its own kind has made."""
        wire_of = self.graph.wire_of
        fresh = [v for v in leaves(tree) if v not in wire_of]
        if fresh:
            read = [wire_of[v].times for o in op.operands for v in leaves(self.values[o])]
            for v in fresh:
                self.graph.wire(v, max(read, default=1))

    # -- instead of writing ----------------------------------------------------------------------------------

    def get(self, value: GlobalValue, layout: AxisLayout, need: str) -> Instruction:
        """Note that ``value`` is wanted in ``layout`` whatever happens; something of that local shape."""
        self.graph.wire_of[value].ask(WireReader(layout=layout, at=len(self.graph.nodes)))
        self._form(value, layout)
        dims = self.context.table.local_dims(layout, value.shape.dims)
        return Instruction("parameter", value.shape.with_dims(dims) if value.shape.is_array else value.shape)

    def _form(self, value: GlobalValue, layout: AxisLayout) -> None:
        """``value`` also lies in ``layout`` from here on."""
        forms = value.forms
        if layout in forms or value.remake is not None:
            return
        dims, nbytes, resharder = value.shape.dims, value.shape.dtype.nbytes, self.context.resharder
        start = resharder.start(dims, nbytes, tuple(forms), layout)
        for step in resharder.path(dims, nbytes, start, layout).steps:
            forms.setdefault(step.after, _NOTHING)

    def partition_locally(self, op: Instruction, row: Local) -> Tree:
        """Choose as the plan has it, else as the operation alone would, and note it."""
        graph = self.graph
        operands = [self.value(o) for o in op.operands]
        wanted = self.wanted(op)
        found = self.strategies(op, row, operands, wanted)
        strategies, key = self._strategies(op, found)
        planned = self.planned(op, row, operands)
        if planned is None:
            best = min(range(len(found)), key=lambda n: found[n][2].cost)
            option = graph.option(strategies, best, found[best][2], tuple(wanted))
        else:
            taken = [local for local, _, _ in found].index(planned.strategy)
            option = graph.option(strategies, taken, planned.choice, tuple(wanted))
        times = max((graph.wire_of[v].times for v in operands), default=1)
        family = OPS[op.opcode].family
        heavy = family not in _LIGHT
        counts = heavy or (family == "elementwise" and op.opcode not in MOVES)
        if not self.alone:
            strategies = ()
        shape = next(op.shape.leaves(), None)
        rate = 0.0
        if counts and shape is not None and shape.is_array:
            product = shape.dtype.name if family == "window" else None
            if family == "contraction" or op.opcode == "convolution":
                product = product_rate(op)
            rate = self.context.resharder.price.rate(shape.dtype, product)
        heavy = heavy and rate == 0
        node = graph.node(
            op, option, key=key, strategies=strategies, heavy=heavy, counts=counts, times=times, rate=rate
        )
        graph.rows[node] = row
        for v, layout in zip(operands, option.operands, strict=True):
            graph.read(node, v)
            self._form(v, layout)
        if node.operands:
            read = node.operands[0]
            read.pieces = read.pieces or find_pieces_read(op, read.dims, self.times / read.times if read.times else 0.0)
        uses = self.uses.get(op, 1) if not op.shape.is_tuple else 2
        values = [
            GlobalValue(op.name, s, x, _NOTHING, wanted=w, uses=uses)
            for s, x, w in zip(op.shape.leaves(), option.results, wanted, strict=True)
        ]
        for v in values:
            graph.give(node, v, times)
        return list(values) if op.shape.is_tuple else values[0]

    def _strategies(
        self, op: Instruction, found: Sequence[tuple[Local, SplitProblem, SplitChoice]]
    ) -> tuple[tuple[OpStrategy, ...], int]:
        """The strategies of an operation, the same objects for equal ones, and a number for them."""
        parts = tuple(
            (local, choice, tuple((r, local.linear(op, r)) for r in REDUCIBLE_LATER), local.finishes(op))
            for local, _, choice in found
        )
        known = self.graph.strategies.get(parts)
        if known is None:
            problems = (problem for _, problem, _ in found)
            strategies = (
                OpStrategy(part[0], problem, part[2], part[3]) for part, problem in zip(parts, problems, strict=True)
            )
            known = self.graph.strategies[parts] = (tuple(strategies), self.graph.key(parts))
        return known

    # -- borders ---------------------------------------------------------------------------------------------

    def enter(self, op: Instruction) -> list[DecisionNode]:
        """Nodes for the leaves of an argument of the program; none where all lie as they are given."""
        graph, interface = self.graph, self.graph.interface
        number = op.attrs["index"]
        layouts, first = self.parameter_layouts[number], sum(map(len, self.parameter_layouts[:number]))
        leaf = range(first, first + len(layouts))
        if interface.arguments.isdisjoint(leaf):
            return []
        nodes: list[DecisionNode] = []
        for n, x in zip(leaf, layouts, strict=True):
            sides = (sum(a == n for a, _ in interface.ties), 1)
            free = n in interface.arguments and len(x.dims) > 0
            nodes.append(graph.node(op, graph.border(x, sides), key=graph.key(sides), free=free))
        graph.arguments.update(zip(leaf, nodes, strict=True))
        return nodes

    def leave(self, number: int, value: GlobalValue, layout: AxisLayout) -> None:
        """``value`` is result ``number`` of the program: in ``layout``, where it is not free."""
        graph = self.graph
        if number not in graph.interface.results:
            self.get(value, layout, "")
            return
        node = next((graph.arguments.get(a) for a, r in graph.interface.ties if r == number), None)
        if node is None:
            sides = (1, 0)
            option, free = graph.border(layout, sides), len(layout.dims) > 0
            among = tuple(graph.given[a] for a, r in graph.interface.like if r == number)
            node = graph.node(graph.root, option, key=graph.key((sides, among)), free=free, among=among)
        graph.read(node, value)
        graph.results[number] = node

    def border(
        self, op: Instruction, layouts: Sequence[AxisLayout], sides: tuple[int, int], *, free: bool
    ) -> list[DecisionNode]:
        """One node per leaf with ``layouts`` that cross a border; ``sides``: how often it is read and given."""
        key = self.graph.key(sides)
        nodes = [
            self.graph.node(op, self.graph.border(x, sides), key=key, free=free and len(x.dims) > 0) for x in layouts
        ]
        if free:
            self.graph.borders[op] = nodes
        return nodes

    def value_of(self, op: Instruction, make: Callable[[Shape], GlobalValue]) -> Tree:
        """The value of ``op`` with leaves made in order."""

        def tree(shape: Shape) -> Tree:
            return [tree(s) for s in shape.elements] if shape.is_tuple else make(shape)

        return tree(op.shape)

    def state(self, op: Instruction) -> tuple[AxisLayout, ...]:
        """How the leaves of ``op`` cross a border: as was found when the program was written, or as propagated."""
        return self.context.states.get((self.signature, op)) or self.wanted(op)

    def value_from_nodes(self, op: Instruction, nodes: Sequence[DecisionNode], times: Sequence[float]) -> Tree:
        """The value of ``op``, its leaves given by ``nodes``."""
        pairs = iter(zip(nodes, times, strict=True))
        uses = self.uses.get(op, 1) if not op.shape.is_tuple else 2

        def make(shape: Shape) -> GlobalValue:
            node, often = next(pairs)
            made = GlobalValue(op.name, shape, node.option.results[0], _NOTHING, uses=uses)
            self.graph.give(node, made, often)
            return made

        tree = self.value_of(op, make)
        want_reduced(self, op, tree, [n.option.results[0] for n in nodes], "")
        return tree

    def inner(
        self,
        callee: Computation,
        parameters: Sequence[Sequence[DecisionNode]],
        results: Sequence[AxisLayout],
        still: frozenset[int] | None = None,
    ) -> list[GlobalValue]:
        """The leaves of a callee's root; none where it was walked before with the same layouts."""
        layouts = tuple(tuple(n.option.results[0] for n in nodes) for nodes in parameters)
        signature = CalleeSignature(callee, layouts, tuple(results))
        if signature in self.graph.done:
            return []
        self.graph.done.add(signature)
        return DryRun(self.graph, callee, layouts, parameters, still).run(results)


def _parameter(body: DryRun, op: Instruction) -> Tree:
    """Given by the nodes at the border, or from outside as it is."""
    number = op.attrs["index"]
    if body.incoming is None:
        borders = body.enter(op)
        if borders:
            return body.value_from_nodes(op, borders, [1.0] * len(borders))
    else:
        nodes, still = body.incoming[number], body.still
        first = [node.operands[0].times for node in nodes]
        times = [t if still is None or n in still else body.times for n, t in enumerate(first)]
        return body.value_from_nodes(op, nodes, times)
    layouts = iter(body.parameter_layouts[number])
    uses = body.uses.get(op, 1) if not op.shape.is_tuple else 2

    def make(shape: Shape) -> GlobalValue:
        made = GlobalValue(op.name, shape, next(layouts), _NOTHING, uses=uses)
        body.graph.wire(made, 1)
        return made

    return body.value_of(op, make)


def _while(body: DryRun, op: Instruction) -> Tree:
    """A carried leaf lies in one layout: before the loop, in the condition, in the body, at its end and behind it."""
    graph, carry = body.graph, body.state(op)
    condition, loop = op.attrs["condition"], op.attrs["body"]
    nodes = body.border(op, carry, (2, 3), free={condition, loop} <= graph.once)
    before = list(leaves(body.values[op.operands[0]]))
    for node, v in zip(nodes, before, strict=True):
        graph.read(node, v)
    still = _still(loop)
    whole = (body.context.table.replicated(0),)
    for v in body.inner(condition, [nodes], whole, still):
        graph.wire_of[v].ask(WireReader(layout=whole[0], at=len(graph.nodes)))
    for node, v in zip(nodes, body.inner(loop, [nodes], carry, still), strict=False):
        graph.read(node, v)
    for node in (nodes[n] for n in still):
        # The state lies before the loop as it does in it, and is moved before it or in it.
        outer = node.operands[0]
        outer.pieces = outer.pieces or next((w.pieces for w in node.results if w.pieces), None)
    times = [graph.wire_of[v].times if n in still else body.times for n, v in enumerate(before)]
    return body.value_from_nodes(op, nodes, times)


def _call(body: DryRun, op: Instruction) -> Tree:
    """Arguments and results cross in one layout each."""
    callee: Computation = op.attrs["to_apply" if op.opcode == "call" else "calls"]
    incoming = [_argument(body, callee, p, o) for p, o in zip(callee.parameters, op.operands, strict=True)]
    results = body.wanted(callee.root)
    nodes = body.border(callee.root, results, (1, 1), free=_may_move(body, callee))
    _leave(body, nodes, body.inner(callee, incoming, results))
    return body.value_from_nodes(op, nodes, [body.times] * len(nodes))


def _argument(body: DryRun, callee: Computation, parameter: Instruction, operand: Instruction) -> list[DecisionNode]:
    nodes = body.border(parameter, body.state(parameter), (1, 1), free=callee in body.graph.once)
    for node, v in zip(nodes, leaves(body.values[operand]), strict=True):
        body.graph.read(node, v)
    return nodes


def _may_move(body: DryRun, callee: Computation) -> bool:
    """A root that is a border itself already has its layouts."""
    return callee in body.graph.once and callee.root.opcode not in (*_BORDERS, "parameter")


def _leave(body: DryRun, nodes: Sequence[DecisionNode], values: Sequence[GlobalValue]) -> None:
    for node, v in zip(nodes, values, strict=False):
        body.graph.read(node, v)


def _barrier(body: DryRun, op: Instruction) -> Tree:
    """Each leaf passes in one layout, at first in that in which it lies."""
    graph, values = body.graph, list(leaves(body.values[op.operands[0]]))
    layouts = [body.context.table.reduced(v.layout) for v in values]
    nodes = body.border(op, layouts, (1, 1), free=graph.free_barriers and body.alone)
    _leave(body, nodes, values)
    return body.value_from_nodes(op, nodes, [graph.wire_of[v].times for v in values])


def _conditional(body: DryRun, op: Instruction) -> Tree:
    """Every branch gives the results in the same layouts; the predicate is whole."""
    body.get(body.value(op.operands[0]), body.context.table.replicated(0), "")
    named = [op.attrs[k] for k in ("true_computation", "false_computation") if k in op.attrs]
    branches: tuple[Computation, ...] = tuple(named) or op.attrs["branch_computations"]
    results = body.state(op)
    nodes = body.border(op, results, (len(branches), 1), free=set(branches) <= body.graph.once)
    for branch, operand in zip(branches, op.operands[1:], strict=True):
        incoming = [_argument(body, branch, branch.parameters[0], operand)]
        _leave(body, nodes, body.inner(branch, incoming, results))
    return body.value_from_nodes(op, nodes, [body.times] * len(nodes))


_BORDERS: Mapping[str, Callable[[DryRun, Instruction], Tree]] = {
    "parameter": _parameter,
    "while": _while,
    "call": _call,
    "fusion": _call,
    "conditional": _conditional,
    "optimization-barrier": _barrier,
}


def _still(loop: Computation) -> frozenset[int]:
    """Leaves of a loop's carry that it never changes."""
    root = loop.root
    if root.opcode != "tuple" or any(o.shape.is_tuple for o in root.operands):
        return frozenset()
    return frozenset(k for k, o in enumerate(root.operands) if carried_element(o, loop) == k)
