"""From a program to its propagation graph.

A loop's operand and body root flow into the carry, which is the loop's result, its parameters and its value in the
condition. Branches flow into the conditional, operands into a called computation's parameters and its root into the
call, values outside into manual computations and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from shardc.hlo.ir.build import uncalled_computations
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.loops.recurrence import find_recurrence
from shardc.hlo.loops.step_maps import find_step_maps
from shardc.sharding.prepare.manual import Border, inner_sharding
from shardc.sharding.prepare.markers import (
    barrier_direction,
    enters_manual,
    group_number,
    is_edge,
    is_function_edge,
    leaves_manual,
    manual_axes_of,
)
from shardc.sharding.propagation.graph import (
    ARGUMENT,
    Equation,
    LoopReaders,
    PropagationGraph,
    Values,
    dead_instructions,
    leaf_annotations,
)
from shardc.sharding.propagation.op_priorities import OpClass, classify
from shardc.sharding.propagation.options import PropagationOptions
from shardc.sharding.rules import conservative_rule, factor_rule, is_data_flow
from shardc.sharding.rules.custom_call import RULE_ATTRIBUTE
from shardc.sharding.rules.factor_rule import Direction, FactorKind, FactorRule, RuleBuilder
from shardc.sharding.rules.notation import parse_rule
from shardc.sharding.rules.reshape import identity_rule

__all__ = ["build_graph"]


def build_graph(
    module: Module,
    mesh: Mesh,
    options: PropagationOptions,
    *,
    written_edges: bool = False,
    follow_calls: bool = True,
) -> PropagationGraph:
    """The graph of a module (reducers are left out).

    Called computations have one call site each, unless ``options.share_functions``. With ``written_edges``, values
    flow only where the program says so by data-flow edges (see `markers.is_edge`). Without ``follow_calls`` values
    flow into called computations and back only through written edges, too (`markers.is_function_edge`). Other
    public functions (``options.every_function``) come behind the entry or, with ``follow_calls``, before it, the last
    one leading, as in Shardy's flat call graph.
    """
    builder = _GraphBuilder(PropagationGraph(mesh), options, written_edges, follow_calls)
    others = uncalled_computations(module) if options.every_function else []
    if follow_calls:
        for c in reversed(others):
            builder.function(c)
    builder.entry(module.entry)
    if follow_calls:
        builder.arguments_of_shared()
    else:
        builder.add_functions(module, others)
    return builder.graph


class _GraphBuilder:
    def __init__(
        self, graph: PropagationGraph, options: PropagationOptions, written_edges: bool, follow_calls: bool
    ) -> None:
        self.graph = graph
        self.conservative = options.conservative
        self.share_functions = options.share_functions
        self.written_edges = written_edges
        self.follow_calls = follow_calls
        self.linked: set[tuple[Instruction, int]] = set()
        self.elements: set[tuple[Instruction, int]] = set()
        self.root: Instruction | None = None
        self.dead: set[Instruction] = set()
        self.seeds: set[Instruction] = set()
        self.borders: set[Instruction] = set()
        self.done: set[Computation] = set()
        self.leaves: dict[int, tuple[Shape, list[tuple[int, int]]]] = {}
        self.calls: dict[Computation, list[list[Values]]] = {}
        self.sites: dict[Computation, list[Instruction]] = {}
        self.owner: dict[Instruction, Computation] = {}
        self.function_edges: list[Equation] = []

    def entry(self, entry: Computation) -> None:
        g = self.graph
        parameters = {p: g.add_values(p) for p in entry.parameters}
        self.root = entry.root
        self.computation(entry, parameters)
        root = entry.root
        if root.opcode != "tuple":
            return
        sources = g.values[root]
        targets = g.add_values(root)
        before = len(g.equations)
        g.add_edges(root, [sources], targets, "result")
        g.results = g.equations[before:]
        del g.equations[before:]
        g.values[root] = targets

    def function(self, c: Computation) -> None:
        """A function that stands for itself: no call says what its arguments are."""
        root = self.computation(c, {p: self.graph.add_values(p) for p in c.parameters})
        for v in root:
            self.graph.uses[v] += 1

    def add_functions(self, module: Module, others: Sequence[Computation]) -> None:
        """Functions without the calls between them, then what flows along written edges between functions."""
        called = [c for i in module.instructions() if i.opcode in ("call", "fusion") for _, c in called_computations(i)]
        for c in (*called, *others):
            if c not in self.done:
                self.function(c)
        for edge in self.function_edges:
            sources = self.sources(edge.instruction)
            edge.rule = identity_rule(self.graph.dims[edge.tensors[-1]], len(sources))
            edge.tensors = (*sources, edge.tensors[-1])

    def arguments_of_shared(self) -> None:
        if self.share_functions:
            for callee in self.calls:
                self.arguments(callee)

    def sources(self, edge: Instruction) -> list[int]:
        """What flows along an edge between functions: the operands of all calls, or what the called function gives."""
        values, leaf, read = self.graph.values, 0, edge.operands[0]
        if read.opcode == "parameter":
            sites = self.sites.get(self.owner[read], ())
            return [values[call.operands[read.attrs["index"]]][0] for call in sites]
        if read.opcode == "get-tuple-element":
            leaf, read = int(read.attrs["index"]), read.operands[0]
        return [values[c.root][leaf] for _, c in called_computations(read)]

    def computation(self, c: Computation, parameters: dict[Instruction, Values]) -> Values:
        values = self.graph.values
        self.done.add(c)
        self.owner.update(dict.fromkeys(parameters, c))
        self.dead.update(dead_instructions(c))
        self._look_ahead(c)
        values.update(parameters)
        for i in c:
            if i not in values:
                values[i] = self.instruction(i, [values[o] for o in i.operands])
        return values[c.root]

    def _look_ahead(self, c: Computation) -> None:
        for i in c:
            if i.opcode == "get-tuple-element":
                self.elements.add((i.operands[0], int(i.attrs["index"])))
            elif i.opcode == "rng-bit-generator":
                self.seeds.add(i.operands[0])
            elif is_edge(i):
                source = i.operands[0]
                taken = source.opcode == "get-tuple-element"
                self.linked.add((source.operands[0], int(source.attrs["index"])) if taken else (source, 0))
            elif enters_manual(i) and is_constraint(i.operands[0]):
                self.borders.add(i.operands[0])

    def is_linked(self, i: Instruction, leaf: int) -> bool:
        return not self.written_edges or (i, leaf) in self.linked

    def instruction(self, i: Instruction, operands: list[Values]) -> Values:
        if not is_data_flow(i.opcode):
            return self.call_or_operation(i, operands)
        handler = {
            "tuple": self.tuple_,
            "get-tuple-element": self.element,
            "while": self.while_,
            "conditional": self.conditional,
            "call": self.call,
            "fusion": self.call,
        }.get(i.opcode, self.barrier)
        return handler(i, operands)

    def call_or_operation(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        if i.opcode != "custom-call" or not operands:
            return self.operation(i, operands)
        if is_edge(i):
            return self.edge(i, operands[0])
        if is_function_edge(i):
            return self.function_edge(i, operands[0])
        if i in self.borders:
            return g.add_values(i)
        if enters_manual(i):
            return self.enter(i, operands[0])
        if leaves_manual(i):
            return self.leave(i, operands[0])
        group, direction = group_number(i), barrier_direction(i)
        if group:
            g.groups.setdefault(group, []).append(operands[0][0])
            g.uses[operands[0][0]] += 1
            return operands[0]
        return self.operation(i, operands) if direction is None else self.stop(i, operands[0], direction)

    def operation(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        results = g.add_values(i)
        if i in self.dead:
            return results
        flat = [v for leaves in operands for v in leaves]
        for v in flat:
            g.uses[v] += 1
        if i in self.seeds and i.attrs.get("custom_call_target") == "X64Combine":
            return results  # a generator's state is whole, and its 64-bit form cannot be resharded
        rule = self.rule(i)
        if any(not f.blocked for f in rule.factors) and len(flat) + len(results) > 1:
            g.add_equation(i, rule, [*flat, *results], classify(i))
        return results

    def rule(self, i: Instruction) -> FactorRule:
        """The user's own rule for an operation, or what is known of it."""
        frontend = i.attrs.get("frontend_attributes", ())
        own = dict(frontend).get(RULE_ATTRIBUTE) if frontend and i.opcode != "custom-call" else None
        if own is not None:
            operands = [s.dims for o in i.operands for s in o.shape.leaves()]
            return parse_rule(own, operands, [s.dims for s in i.shape.leaves()])
        return conservative_rule(i) if self.conservative else factor_rule(i)

    def edge(self, i: Instruction, source: Values) -> Values:
        """A written edge is its value; what it says of the sharding holds for that."""
        (given,) = leaf_annotations(i, 1)
        self.graph.edges.add(source[0])
        if isinstance(given, Sharding):
            self.graph.annotate(source[0], given)
        return source

    def function_edge(self, i: Instruction, source: Values) -> Values:
        """A value of its own; without the calls, what flows into it is known once all functions are there."""
        g = self.graph
        (target,) = g.add_values(i)
        g.add_edge(i, source if self.follow_calls else (), target, "function edge")
        if g.dims[target] and not self.follow_calls:
            self.function_edges.append(g.equations[-1])
        return (target,)

    def stop(self, i: Instruction, source: Values, direction: Direction) -> Values:
        """A propagation barrier: one way, or none."""
        g = self.graph
        target = g.add_values(i)
        g.uses[source[0]] += 1
        if direction:
            rule = identity_rule(g.dims[target[0]])
            g.add_equation(i, rule, (*source, *target), OpClass.BARRIER, direction=direction)
        return target

    def enter(self, i: Instruction, constrained: Values) -> Values:
        """Into a manual computation: from the value before the constraint to the value inside."""
        g, before = self.graph, i.operands[0]
        given, axes = g.initial[constrained[0]], manual_axes_of(i, g.mesh)
        if before not in self.borders or not g.annotated[constrained[0]]:
            return self.operation(i, [constrained])
        border = Border(given, axes, inward=True)
        (inside,) = g.add_values(i)
        source = g.values[before.operands[0]][0]
        g.annotate(inside, inner_sharding(given, axes))
        if self.is_linked(i, 0):
            self.flow(i, [source], inside, "into the manual computation", border)
        else:
            g.uses[source] += 1
        g.outside[constrained[0]] = (inside, border)
        return (inside,)

    def leave(self, i: Instruction, source: Values) -> Values:
        g = self.graph
        (whole,), axes = g.add_values(i), manual_axes_of(i, g.mesh)
        if g.annotated[whole] and self.is_linked(i, 0):
            border = Border(g.initial[whole], axes, inward=False)
            self.flow(i, list(source), whole, "out of the manual computation", border)
        return (whole,)

    def tuple_(self, i: Instruction, operands: list[Values]) -> Values:
        sources = tuple(v for leaves in operands for v in leaves)
        return sources if i is self.root else self._rename_values(i, sources)

    def element(self, i: Instruction, operands: list[Values]) -> Values:
        whole = i.operands[0]
        start, end = self._leaves(whole.shape)[int(i.attrs["index"])]
        found = operands[0][start:end]
        if whole.opcode == "parameter":
            return self._rename_values(i, found)
        for v, given in zip(found, leaf_annotations(i, len(found)), strict=True):
            if isinstance(given, Sharding) and not self.graph.annotated[v]:
                self.graph.annotate(v, given)
        return self._rename_values(i, found)

    def _leaves(self, shape: Shape) -> list[tuple[int, int]]:
        """First leaf, and the one after the last, of each element of a tuple."""
        known = self.leaves.get(id(shape))
        if known is None or known[0] is not shape:
            counts = [sum(1 for _ in e.leaves()) for e in shape.elements]
            ends = list(accumulate(counts))
            known = self.leaves[id(shape)] = shape, [(end - n, end) for n, end in zip(counts, ends, strict=True)]
        return known[1]

    def _rename_values(self, i: Instruction, sources: Values) -> Values:
        """The same values, or new ones behind an edge where the instruction has an annotation of its own."""
        g = self.graph
        shapes = list(i.shape.leaves())
        given = leaf_annotations(i, len(shapes))
        out = list(sources)
        for n, annotation in enumerate(given):
            if isinstance(annotation, Sharding) and annotation.rank and annotation != g.initial[sources[n]]:
                out[n] = g.add_value(i, n, shapes[n], annotation)
                g.add_edges(i, [(sources[n],)], (out[n],), "annotated")
        return tuple(out)

    def barrier(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        targets = g.add_values(i)
        if operands and len(operands[0]) == len(targets):
            for leaf, (source, target) in enumerate(zip(operands[0], targets, strict=True)):
                if self.is_linked(i, leaf):
                    self.flow(i, [source], target, i.opcode)
                else:
                    g.uses[source] += 1
        return targets

    def while_(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        condition, body = i.attrs["condition"], i.attrs["body"]
        kept = _unchanged_elements(body)
        carry = list(g.add_values(i))
        for leaf, source in enumerate(operands[0]):
            if leaf in kept and (i, leaf) not in self.elements and not g.annotated[carry[leaf]]:
                carry[leaf] = source  # a value from outside that the loop only reads
        own = [v for v, source in zip(carry, operands[0], strict=True) if v != source]
        self.computation(condition, {condition.parameters[0]: tuple(carry)})
        in_condition = g.start_counting(own)
        first = len(g.equations)
        root = self.computation(body, {body.parameters[0]: tuple(carry)})
        in_body = g.start_counting(own)
        g.loops.update((v, LoopReaders(first, *counts)) for v, *counts in zip(own, in_condition, in_body, strict=True))
        for leaf, (source, again, target) in enumerate(zip(operands[0], root, carry, strict=True)):
            if target == source:
                continue
            if self.is_linked(i, leaf):
                self.flow(i, [source, again], target, "loop carry")
            else:
                g.uses[source] += 1
                g.uses[again] += 1
        if not self.written_edges:
            self._tie_rows(i, carry)
        self._root_is(body, tuple(carry))
        return tuple(carry)

    def _tie_rows(self, loop: Instruction, carry: Sequence[int]) -> None:
        """Arrays along whose rows a loop goes that each shard can go for itself are split alike."""
        found = find_recurrence(loop)
        if found is None or find_step_maps(found) is None:
            return
        sizes: dict[int, dict[int, int]] = {}
        for row in found.rows:
            sizes.setdefault(found.start[row.element].shape.dims[row.dim], {})[row.element] = row.dim
        for size, dims in sizes.items():
            if len(dims) > 1:
                rule = RuleBuilder([found.start[k].shape.dims for k in dims], [])
                rule.add(size, list(enumerate(dims.values())), FactorKind.PERMUTATION)
                tensors = [carry[k] for k in dims]
                self.graph.add_equation(loop, rule.build(), tensors, OpClass.OTHER, "rows of loop")

    def conditional(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        roots = []
        targets = g.add_values(i)
        branches = [c for _, c in called_computations(i)]
        for branch, operand in zip(branches, operands[1:], strict=True):
            inner = {branch.parameters[0]: operand} if branch.parameters else {}
            roots.append(self.computation(branch, inner))
        for leaf, target in enumerate(targets):
            if self.is_linked(i, leaf):
                self.flow(i, [r[leaf] for r in roots], target, "branch result")
            else:
                for r in roots:
                    g.uses[r[leaf]] += 1
        for branch in branches:
            self._root_is(branch, targets)
        return targets

    def call(self, i: Instruction, operands: list[Values]) -> Values:
        g = self.graph
        callee = next(c for _, c in called_computations(i))
        targets = g.add_values(i)
        self.sites.setdefault(callee, []).append(i)
        if not self.follow_calls:
            for v in (v for leaves in operands for v in leaves):
                g.uses[v] += 1
            return targets
        if callee in self.calls:
            self.calls[callee].append(operands)
        else:
            self.calls[callee] = [operands]
            parameters = {p: g.add_values(p) for p in callee.parameters}
            g.values.update(parameters)
            if not self.share_functions:
                self.arguments(callee)
            self.computation(callee, parameters)
        g.add_edges(i, [g.values[callee.root]], targets, "call result")
        if not self.share_functions:
            self._root_is(callee, targets)
        return targets

    def arguments(self, callee: Computation) -> None:
        """Edges from the operands of all calls to a called computation's parameters."""
        for p, *operands in zip(callee.parameters, *self.calls[callee], strict=True):
            self.graph.add_edges(p, operands, self.graph.values[p], ARGUMENT)
            self.graph.last_first.update(self.graph.values[p])

    def flow(
        self, i: Instruction, sources: Sequence[int], target: int, label: str, border: Border | None = None
    ) -> None:
        """A data-flow edge; Shardy's import turns round the order of its readers."""
        self.graph.add_edge(i, sources, target, label, border)
        if not self.written_edges:
            self.graph.last_first.add(target)

    def _root_is(self, c: Computation, targets: Values) -> None:
        """A tuple at the end of a called computation takes the shardings that its caller wants."""
        if c.root.opcode == "tuple" and not self.written_edges:
            self.graph.values[c.root] = targets


def _unchanged_elements(body: Computation) -> set[int]:
    """Elements of a loop's state that its body passes on as they came."""
    root, (parameter,) = body.root, body.parameters
    if root.opcode != "tuple" or any(e.is_tuple for e in root.shape.elements):
        return set()
    return {
        n
        for n, o in enumerate(root.operands)
        if o.opcode == "get-tuple-element" and o.operands[0] is parameter and int(o.attrs["index"]) == n
    }
