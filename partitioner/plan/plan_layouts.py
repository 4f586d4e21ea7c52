"""Choose the layouts of a whole program at once, for the least cost within a memory limit. The user's annotations are
kept: parameters, results and constraints have the given layouts, and manual computations stay unchanged. Every other
value may have any layout that its operations allow, and so may arguments and results of a free interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from shardc.costs.machines.machine import Machine
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.passes import Pass
from shardc.hlo.transforms.host_values import HostValues
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.emit.names import NameSupply
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.plan.axis_blocks import axis_blocks
from shardc.partitioner.plan.joined_moves import count_joined_moves
from shardc.partitioner.plan.layout_problem import LayoutProblem, build_problem
from shardc.partitioner.plan.memory_spans import MemorySpans
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.node_options import TIE_PER_COLLECTIVE, ClusterOptions
from shardc.partitioner.plan.overlap import find_overlap
from shardc.partitioner.plan.plan_budget import budget_of
from shardc.partitioner.plan.tie_nodes import tie_nodes
from shardc.partitioner.plan.write_shardings import write_shardings
from shardc.partitioner.prepare.contract_unflattened import ContractUnflattened
from shardc.partitioner.prepare.fold_joins import FoldJoins
from shardc.partitioner.prepare.fold_slices import FoldSlices
from shardc.partitioner.prepare.reduce_unflattened import ReduceUnflattened
from shardc.partitioner.prepare.split_transforms import SplitTransforms
from shardc.partitioner.regions.decision_graph import DecisionGraph
from shardc.partitioner.regions.dry_run import build_decision_graph
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, Wire
from shardc.partitioner.reshard.price import Bytes
from shardc.partitioner.rewrite.context import Context
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.decisions import ChosenSplits, PlannedSplit
from shardc.partitioner.strategy.solve.problem import ChoiceProblem, ChosenOptions, MemoryUse
from shardc.partitioner.strategy.solve.solve import SolveLimits, solve_choice
from shardc.partitioner.unreduced.accumulators import count_reductions
from shardc.partitioner.unreduced.linear import Spread

__all__ = ["LayoutQuestion", "pose_question", "ways_of_transforms"]

#: What would be done for values that are split, before they are: any of them may be.
_FOLDS: tuple[Pass, ...] = (
    FoldSlices(free=True),
    FoldJoins(free=True),
    ContractUnflattened(free=True),
    ReduceUnflattened(free=True),
)


@dataclass(frozen=True, slots=True)
class LayoutQuestion:
    """The choices in ``module``: the decisions in ``graph``, their ``problem`` and its ``memory``."""

    module: Module
    interface: FreeInterface
    context: Context
    graph: DecisionGraph
    problem: LayoutProblem
    memory: MemorySpans
    node_options: ClusterOptions
    joined: Mapping[Wire, int]
    reductions: Mapping[Wire, float]

    def unhidden(self) -> LayoutQuestion:
        """The same question, without moves hidden by arithmetic."""
        old, arguments = self.problem, frozenset(self.graph.arguments.values())
        problem = build_problem(
            self.context.resharder,
            old.clusters,
            self.node_options,
            self.graph.wires,
            arguments,
            joined=self.joined,
            reductions=self.reductions,
        )
        memory = MemorySpans(self.context.table, problem, self.memory.wires, self.memory.places, arguments)
        return replace(self, problem=problem, memory=memory)

    def within_arithmetic(self, most: float) -> LayoutQuestion:
        """The same question with a limit on the operations of a device."""
        return replace(self, problem=self.problem.within_arithmetic(most))

    def as_choice(self, limit: float, *, arithmetic: bool = False) -> ChoiceProblem:
        """The problem with this limit of memory per device in bytes (infinite: without rows). With ``arithmetic``, a
        last row limits the operations."""
        problem, memory = self.problem, self.memory
        limits, uses = np.zeros(0), list[MemoryUse]()
        if limit < math.inf:
            limits, uses = np.full(memory.places, limit - memory.given), list(memory.uses())
        if arithmetic and problem.limit is not None:
            uses += problem.limit.uses(len(limits))
            limits = np.append(limits, problem.limit.most)
        return ChoiceProblem(tuple(problem.costs), tuple(problem.pairs), limits, tuple(uses))

    def solve(
        self, limit: float, start: Sequence[int] | None = None, limits: SolveLimits | None = None
    ) -> ChosenOptions:
        """The best choice found within ``limit`` bytes, or the one nearest to the limit; no choice if nothing is
        allowed. Equal decisions are made once, beginning with ``start``. The row of arithmetic makes problems harder,
        so the solver gets it where a choice without it exceeds the limit."""
        limits, held = limits or budget_of("global").limits, self.problem.limit
        answer = self._solve(self.as_choice(limit), start, limits)
        if answer.choice is None or held is None or held.is_met(answer.choice):
            return answer
        problem = self.as_choice(limit, arithmetic=True)
        within = self._solve(problem, answer.choice, limits)
        if within.choice is None or within.excess is not None:
            return answer
        last = len(problem.limits) - 1
        return replace(within, binding=tuple(b for b in within.binding if b.row != last))

    @staticmethod
    def _solve(problem: ChoiceProblem, start: Sequence[int] | None, limits: SolveLimits) -> ChosenOptions:
        merged = merge_equal(problem)
        answer = solve_choice(merged.problem, None if start is None else merged.collapse(start), limits)
        if answer.choice is None:
            return replace(answer, conflict=tuple(merged.classes.index(c) for c in answer.conflict))
        return replace(answer, choice=merged.expand(answer.choice))

    def answer(self, choice: Sequence[int]) -> Module:
        """The program with the shardings of a choice."""
        options = self.problem.options(choice)
        table, chosen = self.context.table, dict[Instruction, tuple[Sharding, ...]]()
        own = {i: i for i in self.module.instructions()}
        named = {i.name: i for i in own}  # rules may rewrite an instruction, as a roll's concatenation
        for node in self.graph.nodes:
            if node in self.graph.rows and node.results:
                layouts = [self._settled(w, choice, options[node].results[w.slot], options) for w in node.results]
                chosen[own.get(node.op) or named[node.op.name]] = tuple(map(table.to_sharding, layouts))
        for op, nodes in self.graph.borders.items():
            chosen[op] = tuple(table.to_sharding(options[n].results[0]) for n in nodes)
        chosen.update(self._interface(options))
        return write_shardings(self.module, chosen)

    def splits(self, choice: Sequence[int]) -> ChosenSplits:
        """The strategies of a choice for the operations of the program that is its `answer`."""
        options, found = self.problem.options(choice), dict[tuple[str, str], PlannedSplit]()
        for node, row in self.graph.rows.items():
            option = options[node]
            if node.strategies and option.choice is not None:
                taken = node.strategies[option.strategy]
                found[node.op.opcode, node.op.name] = PlannedSplit(
                    row, None, taken.local, taken.problem.rule, option.choice
                )
        return self.context.shared(found)

    def _interface(self, options: Mapping[DecisionNode, NodeOption]) -> dict[Instruction, tuple[Sharding, ...]]:
        """The shardings of arguments and results: unchanged, except for free leaves."""
        graph, free, table = self.graph, self.interface, self.context.table
        chosen: dict[Instruction, tuple[Sharding, ...]] = {}
        first = 0
        for p in self.module.parameters:
            found = list(p.leaf_shardings())
            for k in range(len(found)):
                if first + k in free.arguments:
                    node = graph.arguments.get(first + k)
                    found[k] = table.to_sharding(graph.given[first + k] if node is None else options[node].results[0])
            first += len(found)
            chosen[p] = tuple(found)
        root = self.module.entry.root
        found = list(root.leaf_shardings())
        for n in free.results:
            node = graph.results.get(n)
            found[n] = table.to_sharding(graph.wanted[n] if node is None else options[node].operands[0])
        chosen[root] = tuple(found)
        return chosen

    def given_arguments(self) -> list[tuple[str, float]]:
        """Arguments with given layouts, with their bytes, the largest first."""
        module, local = self.module, self.context.table.local_dims
        names = dict(zip((p.name for p in module.parameters), module.argument_names, strict=True))
        found = [
            (names[v.name], float(w.nbytes * math.prod(local(w.given, w.dims))))
            for v, w in self.graph.wire_of.items()
            if w.producer is None and not w.made and v.name in names
        ]
        return sorted(found, key=lambda x: (-x[1], x[0]))

    def _settled(
        self, wire: Wire, choice: Sequence[int], start: AxisLayout, options: Mapping[DecisionNode, NodeOption]
    ) -> AxisLayout:
        """The layout of a value once it is not partial: as it is computed or, for partial values, as it is read."""
        if not start.unreduced:
            return start
        common = self.problem.common.get(wire)
        if common is not None and not common[1][choice[common[0]]].unreduced:
            return common[1][choice[common[0]]]
        for r in wire.readers:
            want = r.want() if r.node is None else options[r.node].operands[r.slot]
            if not want.unreduced:
                return want
        return self.context.table.reduced(start)


def ways_of_transforms(module: Module, machine: Machine | None) -> tuple[bool, ...]:
    """The values of ``whole_transforms`` for which to pose a question. A transform that is written as one for each
    dimension may have any layout between them; but where all are whole, it costs more kernels than there will be."""
    several = any(i.opcode == "fft" and len(i.attrs["fft_length"]) > 1 for i in module.instructions())
    return (False, True) if several and machine is not None else (False,)


def pose_question(
    module: Module,
    machine: Machine | None,
    interface: FreeInterface | None = None,
    *,
    check: Callable[[int, int], None] = lambda decisions, options: None,
    hiding: bool = True,
    known: ChosenSplits | None = None,
    whole_transforms: bool = False,
) -> LayoutQuestion:
    """The question for a propagated module, with its calls inlined and folded as they can be once values are split.

    Leaves of ``interface`` may have any layout; all other arguments and results keep the propagated one. ``check`` is
    called with the number of decisions and the estimated number of options before these are made, and may raise.
    Without ``hiding``, arithmetic hides no move. ``known`` is that of `Context.over`. With ``whole_transforms``, every
    device has all dimensions of a Fourier transform over several ones: see `ways_of_transforms`.
    """
    interface = interface or FreeInterface()
    if module.mesh is None:
        raise UnsupportedError("the module has no mesh", where=module.name, fix="annotate it, or give --mesh")
    folds = _FOLDS if whole_transforms else (*_FOLDS, SplitTransforms(free=True))
    mesh, module = module.mesh, _name_apart(reduce(lambda m, fold: fold.run(m), folds, module))
    context = Context.over(mesh, module, machine, known)
    parameters = [context.layouts(p) for p in module.entry.parameters]
    graph = build_decision_graph(context, RULES, module, parameters, free_barriers=True, interface=interface)
    by_bytes = isinstance(context.resharder.price, Bytes)
    options = ClusterOptions(
        context, axis_blocks(context.table, _find_given_layouts(graph)), TIE_PER_COLLECTIVE if by_bytes else 1e-12
    )
    arguments = frozenset(graph.arguments.values())
    clusters = tie_nodes(graph.nodes)
    check(len(clusters), sum(map(options.most, clusters)))
    overlap = None if by_bytes or not hiding else find_overlap(module, graph.nodes)
    joined = {} if by_bytes else count_joined_moves(module, graph.wires)
    reductions = _count_reductions(module, graph)
    problem = build_problem(context.resharder, clusters, options, graph.wires, arguments, overlap, joined, reductions)
    memory = MemorySpans(context.table, problem, _on_device(module, graph), len(graph.nodes) + 1, arguments)
    return LayoutQuestion(module, interface, context, graph, problem, memory, options, joined, reductions)


def _count_reductions(module: Module, graph: DecisionGraph) -> dict[Wire, float]:
    """How often the values are reduced that loops only add up."""
    found = count_reductions(module, Spread.of_any_layouts(RULES))
    return {w: found[op] for w, (op, _) in graph.places.items() if op in found}


def _on_device(module: Module, graph: DecisionGraph) -> Sequence[Wire]:
    """The values that use the device's memory: all except those in host memory."""
    host = HostValues(module)
    if not host.any:
        return graph.wires
    away = {w for w, (op, leaf) in graph.places.items() if host.of(op)[leaf]}
    return [w for w in graph.wires if w not in away]


def _name_apart(module: Module) -> Module:
    """``module`` with a name of its own for each instruction: opened calls have copies of one."""
    names = NameSupply(i.name for i in module.instructions())

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        name = names.own(old.name)
        return None if name == old.name else old.replace(operands=operands, name=name)

    return rebuild_module(module, change)


def _find_given_layouts(graph: DecisionGraph) -> list[AxisLayout]:
    """Layouts given by the user: of arguments, results and constraints."""
    found = [w.given for w in graph.wires if w.producer is None and not w.made]
    found += [r.want() for w in graph.wires for r in w.readers if r.node is None]
    return list(dict.fromkeys(found))
