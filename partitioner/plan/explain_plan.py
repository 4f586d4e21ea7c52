"""The reasons of a plan: for each decided value the propagated layout, the chosen layout, and the cost of the next
best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.plan.alternatives import Alternatives
from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.plan.plan_reasons import DecidedRole, LayoutDecision, MemoryRow, PlanReasons
from shardc.partitioner.plan.seeds.nearest_choice import with_common_forms
from shardc.partitioner.regions.region_graph import DecisionNode, Wire
from shardc.partitioner.reshard.price import Seconds
from shardc.partitioner.strategy.solve.problem import BindingRow, ChosenOptions, Numbers

__all__ = ["explain_plan", "heaviest_values", "name_variables", "wanted_choice"]

#: Rows of memory that are told, and values in each; other layouts of a value that are tried.
_ROWS, _HEAVIEST, _OTHERS = 4, 8, 3


def explain_plan(
    question: LayoutQuestion,
    answer: ChosenOptions,
    limit: float,
    judged: Judgement,
    judged_wanted: Judgement,
    *,
    memory: float | None = None,
    why: str = "",
) -> PlanReasons:
    """The reasons of a plan that was made for ``limit`` modelled bytes.

    ``answer`` is the choice of the whole problem, ``memory`` the limit of a device. With a ``why`` the plan was not
    taken, and the result has no single values.
    """
    assert answer.choice is not None
    price = question.context.resharder.price
    machine = price.machine.name if isinstance(price, Seconds) else ""
    wanted = wanted_choice(question)
    rows = [] if why else list(_rows(question, answer, limit))
    decisions = [] if why else _PlanTelling(question, answer.choice, limit, [place for place, _ in rows]).decisions()
    return PlanReasons(
        question.context.table.mesh,
        machine,
        "s" if machine else "B",
        not why,
        why,
        answer.cost,
        question.as_choice(np.inf).cost(wanted),
        answer.bound,
        answer.method,
        judged,
        judged_wanted,
        memory,
        tuple(decisions),
        tuple(row for _, row in rows),
        tuple(question.memory.usage(answer.choice).tolist()),
        tuple(question.memory.usage(wanted).tolist()),
    )


@dataclass(frozen=True, slots=True)
class _DecidedValue:
    """The value that stands for a variable in reports: leaf ``leaf`` of ``op``, called ``name``. It belongs to
    ``node``, member number ``member`` of its cluster."""

    name: str
    role: DecidedRole
    op: Instruction
    leaf: int
    wire: Wire
    node: DecisionNode
    member: int

    @property
    def shape(self) -> Shape:
        return list(self.op.shape.leaves())[self.leaf]


def _values(question: LayoutQuestion) -> list[_DecidedValue | None]:
    """The value of each cluster: the largest one that other clusters read; None for scalars, and if there are no
    readers."""
    borders = _borders(question)
    return [_value(question, k, borders) for k in range(len(question.problem.clusters))]


def _borders(question: LayoutQuestion) -> dict[DecisionNode, tuple[str, DecidedRole, Instruction, int]]:
    """The names of borders, and the values that they stand for."""
    graph, module = question.graph, question.module
    found: dict[DecisionNode, tuple[str, DecidedRole, Instruction, int]] = {}
    for op, nodes in graph.borders.items():
        for leaf, n in enumerate(nodes):
            found[n] = (op.name, "loop" if op.opcode == "while" else "value", op, leaf)
    for number, n in graph.results.items():
        name = module.result_names[number] if number < len(module.result_names) else ""
        found[n] = (name or f"result{number}", "result", module.entry.root, number)
    first = 0
    for p, name in zip(module.parameters, module.argument_names, strict=True):
        count = sum(1 for _ in p.shape.leaves())
        for leaf in range(count):
            node = graph.arguments.get(first + leaf)
            if node is not None:
                found[node] = (name, "argument", p, leaf)
        first += count
    return found


def _value(
    question: LayoutQuestion, k: int, borders: dict[DecisionNode, tuple[str, DecidedRole, Instruction, int]]
) -> _DecidedValue | None:
    cluster = question.problem.clusters[k]
    own, best, most = set(cluster.members), None, 0
    for j, n in enumerate(cluster.members):
        for slot, wire in enumerate(n.results or (n.operands[:1] if n.free else ())):
            outside = any(r.node is None or r.node not in own for r in wire.readers) or n in borders
            size = int(np.prod(wire.dims)) * wire.nbytes if wire.dims and outside else 0
            if size > most:
                name, role, op, leaf = borders.get(n, (n.op.name, "value", n.op, slot))
                best, most = _DecidedValue(name, role, op, leaf, wire, n, j), size
    return best


@dataclass(slots=True)
class _PlanTelling:
    question: LayoutQuestion
    choice: Sequence[int]
    limit: float
    places: Sequence[int]
    values: list[_DecidedValue | None] = field(init=False)

    def __post_init__(self) -> None:
        self.values = _values(self.question)

    def decisions(self) -> Iterator[LayoutDecision]:
        """In program order, equal ones together."""
        merged = merge_equal(self.question.as_choice(self.limit))
        others = Alternatives(merged.problem, merged.collapse(self.choice))
        classes: dict[object, list[int]] = {}
        for k, value in enumerate(self.values):
            if value is not None and len(set(self._layouts(k, value))) > 1:
                key = (merged.classes[k], value.role, value.op.opcode, value.shape, value.wire.preferred)
                classes.setdefault(key, []).append(k)
        for ks in classes.values():
            yield self._decision(ks, merged.classes[ks[0]], others)

    def _layouts(self, k: int, value: _DecidedValue) -> list[AxisLayout]:
        """The layout of the value under each option."""
        options = self.question.problem.members[k][value.member].options
        return [(o.results or o.operands)[_slot(value)] for o in options]

    def _decision(self, ks: Sequence[int], variable: int, others: Alternatives) -> LayoutDecision:
        value = self.values[ks[0]]
        assert value is not None
        table, layouts = self.question.context.table, self._layouts(ks[0], value)
        chosen, wanted = layouts[self.choice[ks[0]]], _wanted_layout(value)
        groups: dict[object, list[int]] = {}
        for k, x in enumerate(layouts):
            groups.setdefault(x, []).append(k)
        back = 0.0 if wanted == chosen else others.more(variable, groups[wanted]) if wanted in groups else None
        near = [x for x in others.rank(variable, groups) if x != chosen][:_OTHERS]
        tried = [(m, n) for n, x in enumerate(near) if (m := others.more(variable, groups[x])) is not None]
        least = min(tried, default=None)
        best = None if least is None else near[least[1]]
        assert best is None or isinstance(best, AxisLayout)
        names = tuple(v.name for k in ks if (v := self.values[k]) is not None)
        memory = self.question.memory
        spans = [(low, high) for low, high, v, nbytes in memory.spans if v in ks and nbytes[self.choice[v]]]
        binds = (n for n, place in enumerate(self.places) if any(low <= place <= high for low, high in spans))
        return LayoutDecision(
            names,
            value.role,
            value.leaf,
            value.op.opcode,
            str(value.op.source or ""),
            value.op.metadata.op_name if value.op.metadata else "",
            value.shape,
            table.to_sharding(wanted),
            table.to_sharding(chosen),
            back,
            None if best is None else table.to_sharding(best),
            None if least is None else least[0],
            value.node.times,
            tuple(binds),
        )


def _slot(value: _DecidedValue) -> int:
    return value.wire.slot if value.wire.producer is value.node else 0


def _wanted_layout(value: _DecidedValue) -> AxisLayout:
    """The propagated layout, with which borders begin."""
    node = value.node
    return (node.option.results or node.option.operands)[0] if node.free else value.wire.preferred


def wanted_choice(question: LayoutQuestion) -> tuple[int, ...]:
    """The options that are nearest to the propagated layouts."""
    problem = question.problem
    found: list[int] = []
    for cluster, members in zip(problem.clusters, problem.members, strict=True):
        if not cluster.loop_of:
            found.append(0)
            continue
        like: Numbers = np.zeros(len(members[0].options))
        for n, m in zip(cluster.members, members, strict=True):
            for slot, wire in enumerate(n.results):
                like += [wire.nbytes * np.prod(wire.dims) * (x == wire.preferred) for x in m.starts(slot)]
        found.append(int(like.argmax()))
    return with_common_forms(problem, found)


def _rows(question: LayoutQuestion, answer: ChosenOptions, limit: float) -> Iterator[tuple[int, MemoryRow]]:
    """The instructions where memory increases the cost most, in program order, each with its fullest row."""
    assert answer.choice is not None
    nodes, names = question.graph.nodes, name_variables(question)
    at: dict[Instruction, list[BindingRow]] = {}
    for b in answer.binding:
        at.setdefault(nodes[min(b.row, len(nodes) - 1)].op, []).append(b)
    saves = {op: math.fsum(b.multiplier for b in rows) for op, rows in at.items()}
    told = sorted(at, key=lambda op: -saves[op])[:_ROWS]
    fullest = {op: max(at[op], key=lambda b: b.usage) for op in told}
    for op, b in sorted(fullest.items(), key=lambda x: x[1].row):
        heaviest = heaviest_values(question, answer.choice, b.row, names)
        used = b.usage + question.memory.given
        yield b.row, MemoryRow(op.name, str(op.source or ""), used, limit, saves[op], heaviest)


def heaviest_values(
    question: LayoutQuestion, choice: Sequence[int], place: int, names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """The values that take most memory at a place, with their bytes."""
    found: dict[str, float] = {}
    for low, high, v, nbytes in question.memory.spans:
        if low <= place <= high:
            found[names[v]] = found.get(names[v], 0.0) + float(nbytes[choice[v]])
    return tuple(sorted(((n, b) for n, b in found.items() if b), key=lambda x: (-x[1], x[0]))[:_HEAVIEST])


def name_variables(question: LayoutQuestion) -> list[str]:
    """The name of each variable of the problem."""
    values = _values(question)
    clusters = question.problem.clusters
    names = [c.members[0].op.name if v is None else v.name for c, v in zip(clusters, values, strict=True)]
    given = dict(zip((p.name for p in question.module.parameters), question.module.argument_names, strict=True))
    made = {w: given.get(v.name, v.name) for v, w in question.graph.wire_of.items()}
    places = {n: k for k, c in enumerate(clusters) for n in c.members}
    names += [""] * (len(question.problem.costs) - len(names))
    for wire, (hub, _) in question.problem.common.items():
        names[hub] = names[places[wire.producer]] if wire.producer else made[wire]
    return names
