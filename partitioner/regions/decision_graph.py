"""What a dry run records: operations with the strategies they may take, values with their readers, borders.

Equal strategies and options are one object here, however many operations have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.costs.kernels.trips import count_executions
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.free_interface import FreeInterface
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption, OpStrategy, Wire
from shardc.partitioner.rewrite.context import CalleeSignature, Context
from shardc.partitioner.strategy.choose import SplitChoice, own_cost, volume
from shardc.partitioner.strategy.rule import Local, PartitionRow
from shardc.partitioner.strategy.values import REDUCIBLE_LATER, GlobalValue

__all__ = ["DecisionGraph", "settle"]


class DecisionGraph:
    """What a dry run records: nodes, wires, and what they stand for. ``places`` has the operation and the leaf that a
    wire is the value of, ``rows`` the rows that operations went by; ``borders`` borders by operation.
    ``free_barriers``: what passes a barrier may do so in any layout. ``arguments`` and ``results`` are the borders of
    leaves of the program's ``interface``, ``given`` and ``wanted`` its layouts at present."""

    def __init__(
        self,
        context: Context,
        rules: Mapping[str, PartitionRow],
        module: Module,
        *,
        free_barriers: bool = False,
        interface: FreeInterface | None = None,
    ) -> None:
        self.free_barriers = free_barriers
        self.interface = interface or FreeInterface()
        self.arguments: dict[int, DecisionNode] = {}
        self.results: dict[int, DecisionNode] = {}
        self.given: Sequence[AxisLayout] = ()
        self.wanted: Sequence[AxisLayout] = ()
        self.root = module.entry.root
        self.context = context
        self.rules = rules
        self.nodes: list[DecisionNode] = []
        self.wires: list[Wire] = []
        self.wire_of: dict[GlobalValue, Wire] = {}
        self.places: dict[Wire, tuple[Instruction, int]] = {}
        self.rows: dict[DecisionNode, Local] = {}
        self.borders: dict[Instruction, list[DecisionNode]] = {}
        self.counts = count_executions(module).count
        self.once = _called_once(module)
        self.done: set[CalleeSignature] = set()
        self.strategies: dict[object, tuple[tuple[OpStrategy, ...], int]] = {}
        self._keys: dict[object, int] = {}
        self._borders: dict[tuple[AxisLayout, tuple[int, int]], NodeOption] = {}
        self._options: dict[tuple[SplitChoice, int, tuple[AxisLayout, ...], bool], NodeOption] = {}

    def wire(self, value: GlobalValue, times: float) -> Wire:
        """A new wire for a value."""
        nbytes = value.shape.dtype.nbytes if value.shape.is_array else 0
        w = Wire(len(self.wires), value.shape.dims, nbytes, value.layout, value.wanted)
        w.made = value.remake is not None
        w.times = times
        self.wires.append(w)
        self.wire_of[value] = w
        return w

    def give(self, node: DecisionNode, value: GlobalValue, times: float) -> None:
        """``value`` is the next result of ``node``."""
        w = self.wire(value, times)
        w.producer, w.slot = node, len(node.results)
        node.results.append(w)

    def read(self, node: DecisionNode, value: GlobalValue) -> None:
        """``node`` reads ``value`` next."""
        node.read(self.wire_of[value])

    def node(self, op: Instruction, option: NodeOption, **what: object) -> DecisionNode:
        barred = self.context.barred_of(op)
        made = DecisionNode(len(self.nodes), op, option, barred=barred, **what)  # type: ignore[arg-type]
        self.nodes.append(made)
        return made

    def key(self, parts: object) -> int:
        """A number for what decides about a node."""
        return self._keys.setdefault(parts, len(self._keys))

    def border(self, layout: AxisLayout, sides: tuple[int, int]) -> NodeOption:
        """The option that a border lies in ``layout`` on both of its sides."""
        key = (layout, sides)
        if key not in self._borders:
            self._borders[key] = NodeOption((layout,) * sides[0], (layout,) * sides[1])
        return self._borders[key]

    def option(
        self, strategies: Sequence[OpStrategy], strategy: int, choice: SplitChoice, preferred: tuple[AxisLayout, ...]
    ) -> NodeOption:
        """The option that a choice is, the same object for the same choice."""
        key = (choice, strategy, preferred, strategies[strategy].finished)
        found = self._options.get(key)
        if found is None:
            found = self._options[key] = settle(self.context, strategies[strategy], strategy, choice, preferred)
        return found


def settle(
    context: Context, strategy: OpStrategy, number: int, choice: SplitChoice, preferred: Sequence[AxisLayout]
) -> NodeOption:
    """What a choice comes to when results that cannot stay partial are finished at once."""
    table, resharder, problem = context.table, context.resharder, strategy.problem
    wire, count = own_cost(table, resharder, problem, choice.factors)
    results: list[AxisLayout] = []
    for layout, (dims, nbytes, _), aim in zip(choice.results, problem.results, preferred, strict=True):
        end = layout
        if layout.unreduced and strategy.finished:
            end = table.reduced(layout)
        elif layout.unreduced and layout.reduction not in REDUCIBLE_LATER:
            end = aim
        more = resharder.cost(dims, nbytes, layout, end)
        wire, count = wire + more[0], count + more[1]
        results.append(end)
    work = volume(table, problem.rule, choice.factors)
    return NodeOption(choice.operands, tuple(results), (wire, count), number, choice, work)


def _called_once(module: Module) -> frozenset[Computation]:
    """Computations that run in one place only, as do those around them."""
    callers: dict[Computation, int] = {}
    for i in module.instructions():
        for _, callee in called_computations(i):
            callers[callee] = callers.get(callee, 0) + 1
    once: set[Computation] = {module.entry}
    for computation in reversed(module.computations):
        if computation in once:
            once.update(c for i in computation for _, c in called_computations(i) if callers[c] == 1)
    return frozenset(once)
