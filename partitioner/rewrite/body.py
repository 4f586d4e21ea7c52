"""Rewriting one computation: every global value becomes a local one, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction, Origin, has_side_effect, topological
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.progress import detail
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms, AxisLayout
from shardc.partitioner.reshard.moves import (
    AllReduce,
    AllToAll,
    Gather,
    MakePartial,
    PadPart,
    Permute,
    ReduceScatter,
    ReshardStep,
    Slice,
    emit_move,
    moved_atoms,
)
from shardc.partitioner.rewrite.context import CalleeSignature, Context
from shardc.partitioner.rewrite.preferred_partials import preferred_partials
from shardc.partitioner.rewrite.required_layouts import required_layouts
from shardc.partitioner.rewrite.scope import ComputationScope
from shardc.partitioner.strategy.cause import Cause, SplitDecision
from shardc.partitioner.strategy.choose import SplitChoice, SplitOperand, SplitProblem
from shardc.partitioner.strategy.decisions import PlannedSplit
from shardc.partitioner.strategy.pieces import find_pieces_read
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, Refused
from shardc.partitioner.strategy.values import REDUCIBLE_LATER, GlobalValue, PartialAxes, Tree, leaves
from shardc.partitioner.unreduced.moved_partials import is_moved
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["Body", "Handled", "partition_computation"]

#: After how many instructions it is told how far the walk is.
_TOLD = 500


def partition_computation(
    context: Context,
    rules: Mapping[str, PartitionRow],
    computation: Computation,
    parameters: Sequence[tuple[AxisLayout, ...]],
    results: Sequence[AxisLayout],
) -> Computation:
    """The local form of ``computation``; layouts are per leaf of each parameter and of the root."""
    body = Body(context, rules, computation, parameters)
    body.walk(results)
    return body.finish(results)


@dataclass(frozen=True, slots=True)
class Handled(PartitionRow):
    """An operation with its own way: data flow, control flow, values made from nothing.

    ``mostly`` is how it runs on shards where its own way does not apply: what is linear, and the layouts that are
    asked of its operands, follow from that.
    """

    summary: str
    partition: Callable[[Body, Instruction], Tree]
    mostly: Local | None = None

    @property
    def strategies(self) -> tuple[Local, ...]:
        """Those of the way that it mostly goes."""
        return () if self.mostly is None else self.mostly.strategies


class Body(ComputationScope):
    """One computation while it is rewritten: its emitter and the value of each global instruction."""

    def __init__(
        self,
        context: Context,
        rules: Mapping[str, PartitionRow],
        computation: Computation,
        parameters: Sequence[tuple[AxisLayout, ...]],
    ) -> None:
        super().__init__(context, rules, computation, parameters)
        self.signature = CalleeSignature(computation, tuple(parameters), ())
        self.em = Emitter(context.table, context.reducers, context.names)
        self.values: dict[Instruction, Tree] = {}
        self.reader: Instruction | None = None
        self.asked: tuple[SplitDecision, Instruction] | None = None

    # -- the walk --------------------------------------------------------------------------------------------

    def walk(self, results: Sequence[AxisLayout]) -> None:
        """Visit everything that a computation with results in these layouts needs."""
        self.signature = CalleeSignature(self.computation, tuple(self.parameter_layouts), tuple(results))
        live = self.live()
        self.required = required_layouts(self, live, results)
        self.required = {**self.required, **preferred_partials(self, live, results)}
        for number, instruction in enumerate(live):
            if number % _TOLD == 0 and number:
                detail("%d of %d instructions", number, len(live))
            self.visit(instruction)

    def visit(self, op: Instruction) -> None:
        """Partition one instruction and remember its value."""
        row = self.rules[op.opcode]
        self.em.metadata, self.em.origin = op.metadata, op.origin
        self.reader = op
        if isinstance(row, Local):
            self.values[op] = self.partition_locally(op, row)
        elif isinstance(row, Handled):
            self.values[op] = row.partition(self, op)
        else:
            assert isinstance(row, Refused)
            raise UnsupportedError(
                f"{op.opcode} cannot be partitioned: {row.why}",
                where=f"%{op.name}" + (f" ({op.source})" if op.source else ""),
                fix="remove it, or give an already partitioned program",
            )
        common = self.context.plan.common.get(op, {})
        for leaf, value in enumerate(leaves(self.values[op]) if common else ()):
            value.common = common.get(leaf)

    def finish(self, results: Sequence[AxisLayout]) -> Computation:
        """The local computation, its root in the given layouts."""
        root = self.computation.root
        self.em.metadata, self.em.origin = root.metadata, None
        self.reader = root
        tree = self.values[root]
        reason = "the computation returns"
        local = self.assemble(
            root.shape, tree, iter([self.get(v, x, reason) for v, x in zip(leaves(tree), results, strict=True)])
        )
        kept = [i for i in self.em.instructions if i.opcode == "parameter" or has_side_effect(i)]
        kept.append(local)
        needed = set(topological(kept))
        order = [i for i in self.em.instructions if i in needed]
        return Computation(self.context.computation_names.own(self.computation.name), order, local)

    def callee(
        self, computation: Computation, parameters: tuple[tuple[AxisLayout, ...], ...], results: tuple[AxisLayout, ...]
    ) -> Computation:
        """The local form of a called computation, made once for each way in which its parameters and results lie."""
        signature = CalleeSignature(computation, parameters, results)
        known = self.context.callees
        if signature not in known:
            known[signature] = partition_computation(self.context, self.rules, computation, parameters, results)
        return known[signature]

    # -- values ----------------------------------------------------------------------------------------------

    def value(self, op: Instruction) -> GlobalValue:
        """The value of an array-shaped instruction."""
        tree = self.values[op]
        assert isinstance(tree, GlobalValue), f"%{op.name} is a tuple"
        return tree

    def get(self, value: GlobalValue, layout: AxisLayout, need: str) -> Instruction:
        """The local instruction that holds ``value`` in ``layout``; ``need`` says who asks, for reports."""
        found = value.forms.get(layout)
        if found is not None:
            return found
        if value.remake is not None:
            made = value.forms[layout] = self._remake(value, layout)
            return made
        if value.common is not None and value.common not in value.forms:
            self._move(value, value.common, need)
        return value.forms.get(layout) or self._move(value, layout, need)

    def _move(self, value: GlobalValue, layout: AxisLayout, need: str) -> Instruction:
        """``value`` brought into ``layout`` from the nearest of its forms."""
        dims, nbytes = value.shape.dims, value.shape.dtype.nbytes
        resharder = self.context.resharder
        start = resharder.start(dims, nbytes, tuple(value.forms), layout)
        local = value.forms[start]
        metadata, origin = self.em.metadata, self.em.origin
        table = self.context.table
        asked, operand = self.asked or (None, None)
        data = (value.name, value.shape, value.metadata, start, layout)
        cause = Cause(*data, table, self.reader, asked, value.made, operand)
        for step in resharder.path(dims, nbytes, start, layout).steps:
            self.em.origin = self._origin(value, step, need, cause)
            if isinstance(step.move, AllReduce | ReduceScatter) and value.metadata is not None:
                self.em.metadata = value.metadata
            local = emit_move(self.em, local, dims, step, moved=value.moved)
            self.em.metadata, self.em.origin = metadata, origin
            value.forms.setdefault(step.after, local)
        return value.forms[layout]

    def _remake(self, value: GlobalValue, layout: AxisLayout) -> Instruction:
        """A value made afresh; as a partial value one member holds it, unless it is the identity anyway."""
        assert value.remake is not None
        made = value.remake(self.context.table.reduced(layout))
        if not layout.unreduced:
            return made
        identity = self.em.identity(layout.reduction, made.shape.dtype)
        scalar = made.operands[0] if made.opcode == "broadcast" else made
        if scalar.opcode == "constant" and scalar.attrs["literal"] == identity.attrs["literal"]:
            return made
        return self.em.keep_on_first(made, layout.unreduced, identity)

    def _origin(self, value: GlobalValue, step: ReshardStep, need: str, cause: Cause) -> Origin:
        """Why a move of ``value`` is there, for people."""
        table, move = self.context.table, step.move
        name = self.context.arguments.get(value.name, value.name)
        match move:
            case AllReduce(atoms) | ReduceScatter(_, atoms):
                reason = "; ".join(dict.fromkeys(value.why[a] for a in sorted(atoms) if a in value.why))
                reason = reason or "partial values are summed"
                if isinstance(move, ReduceScatter):
                    reason += f"; {need} dimension {move.dim} split"
            case Gather(dim, atoms):
                reason = f"{need} dimension {dim} of {name} whole over {_text(table.axis_names(atoms))}"
            case AllToAll(parts):
                atoms = move.atoms
                changes = (
                    f"split over {_text(table.axis_names(part))} along dimension {target} instead of {source}"
                    for source, target, part in parts
                )
                reason = f"{need} {name} {', '.join(changes)}"
            case Permute():
                atoms = moved_atoms(step.before, step.after)
                reason = f"{need} the shards of {name} on other devices"
            case MakePartial(atoms):
                reason = f"{need} {name} as partial values: one device of each group keeps it"
            case PadPart(dim, atoms):
                reason = f"{need} {name} as partial values: each device pads its part of dimension {dim}"
            case Slice(_, atoms):
                reason = f"{need} its part of {name}"
        return Origin(reason, "reshard", value.name, table.axis_names(tuple(sorted(atoms))), (cause,))

    def local_shape(self, shape: Shape, local: Iterator[Shape]) -> Shape:
        """``shape`` with its leaves replaced by the local ones in order."""
        if shape.is_tuple:
            return tuple_shape(*(self.local_shape(e, local) for e in shape.elements))
        return next(local)

    def assemble(self, shape: Shape, tree: Tree, locals_: Iterator[Instruction]) -> Instruction:
        """A local array or tuple of the structure of ``tree`` from the local leaves in order."""
        if isinstance(tree, GlobalValue):
            return next(locals_)
        parts = [self.assemble(s, t, locals_) for s, t in zip(shape.elements, tree, strict=True)]
        return self.em.add("tuple", tuple_shape(*(p.shape for p in parts)), *parts)

    def disassemble(self, op: Instruction, shape: Shape, local: Instruction, layouts: Iterator[AxisLayout]) -> Tree:
        """The value tree of a local array or tuple whose leaves have ``layouts`` in order."""
        if not shape.is_tuple:
            layout = next(layouts)
            uses = self.uses.get(op, 1) if not op.shape.is_tuple else 2
            return GlobalValue(op.name, shape, layout, local, uses=uses, metadata=op.metadata)
        out: list[Tree] = []
        for i, element in enumerate(shape.elements):
            part = self.em.add("get-tuple-element", local.shape.elements[i], local, index=i)
            out.append(self.disassemble(op, element, part, layouts))
        return out

    # -- operations on shards --------------------------------------------------------------------------------

    def partition_locally(self, op: Instruction, row: Local) -> Tree:
        """Choose how to split ``op``, bring the operands there, and write it."""
        operands = [self.value(o) for o in op.operands]
        wanted = self.wanted(op)
        shapes = tuple(op.shape.leaves())
        row, decided = self._decide(op, row, operands, wanted)
        choice, rule = decided.choice, decided.problem.rule
        need = f"{op.opcode} %{op.name}{self.planned_why(op)} needs"
        local = []
        for o, v, layout in zip(op.operands, operands, choice.operands, strict=True):
            self.asked = (decided, o)
            local.append(self.get(v, layout, need))
        self.asked = None
        site = LocalSite(op, rule, choice, self.em, local, shapes)
        start = len(self.em.instructions)
        made = row.emit(site)
        self._tell_own(decided, operands, start)
        why = self._why_partial(op, site, operands)
        maker = _maker(decided, operands) if any(x.unreduced for x in choice.results) else None
        uses = self.readers(op) if len(shapes) == 1 and not op.shape.is_tuple else 2
        reducing = any(choice.factors[f] for f in rule.of_kind(FactorKind.REDUCTION))
        moved = is_moved(op, operands, choice.operands, reducing=reducing)
        table = self.context.table
        layouts = [table.reduced(x) if site.finished else x for x in choice.results]
        values = [
            GlobalValue(op.name, s, x, m, wanted=w, uses=uses, why=why, made=maker, metadata=op.metadata, moved=moved)
            for s, x, m, w in zip(shapes, layouts, made, wanted, strict=True)
        ]
        for v in values:
            if v.layout.unreduced and v.layout.reduction not in REDUCIBLE_LATER:
                self._finish_now(v)
            elif v.layout.unreduced and op.shape.is_array:
                self.context.partial[op] = PartialAxes(v.layout.unreduced, v.layout.reduction)
        return list(values) if op.shape.is_tuple else values[0]

    def _decide(
        self, op: Instruction, row: Local, operands: Sequence[GlobalValue], wanted: Sequence[AxisLayout]
    ) -> tuple[Local, SplitDecision]:
        """As planned, where the operands lie as the plan has them; else the cheapest strategy, the first of equals."""
        resharder = self.context.resharder
        planned = self.planned(op, row, operands)
        if planned is not None:
            problem = self._problem(op, planned.strategy, planned.rule, operands, wanted)
            regional = self.context.plan.why.get(op)
            return planned.strategy, SplitDecision(op, problem, planned.choice, resharder, regional)
        strategy, problem, choice = min(self.strategies(op, row, operands, wanted), key=lambda found: found[2].cost)
        return strategy, SplitDecision(op, problem, choice, resharder)

    def planned(self, op: Instruction, row: Local, operands: Sequence[GlobalValue]) -> PlannedSplit | None:
        """What the plan has for ``op``, where it holds."""
        found = self.context.plan.decisions.get(op)
        return found if found is not None and found.row is row and found.fits(operands) else None

    def strategies(
        self, op: Instruction, row: Local, operands: Sequence[GlobalValue], wanted: Sequence[AxisLayout]
    ) -> list[tuple[Local, SplitProblem, SplitChoice]]:
        """The strategies for ``op``, each with the best choice for operands as they lie."""
        found: list[tuple[Local, SplitProblem, SplitChoice]] = []
        for strategy in row.strategies:
            rule = strategy.rule(op)
            if rule is not None:
                problem = self._problem(op, strategy, rule, operands, wanted)
                found.append((strategy, problem, self.context.choice(problem)))
        assert found, f"no strategy for {op.opcode}"
        return found

    def _problem(
        self,
        op: Instruction,
        strategy: Local,
        rule: FactorRule,
        operands: Sequence[GlobalValue],
        wanted: Sequence[AxisLayout],
    ) -> SplitProblem:
        """What there is to decide about ``op`` done in one ``strategy``, its operands as they lie."""
        aims = (self.required[op],) if op in self.required else wanted
        reductions = sorted({v.layout.reduction for v in operands if v.layout.unreduced})
        linear = tuple(
            g for r in reductions for g in strategy.linear(op, r) if _partial_with(operands, g, r, aims[0].unreduced)
        )
        repetitions = self.context.repetitions
        return SplitProblem(
            rule,
            strategy.usable(op, rule),
            tuple(_operand(v, repetitions.get(o, 1), op) for v, o in zip(operands, op.operands, strict=True)),
            tuple((s.dims, s.dtype.nbytes, w) for s, w in zip(op.shape.leaves(), aims, strict=True)),
            linear,
            strategy.sends(op, rule) if strategy.sends is not None else None,
            strategy.computes(op, rule) if strategy.computes is not None else None,
            self.context.barred_of(op),
            strategy.sends_by,
        )

    def _tell_own(self, decided: SplitDecision, operands: Sequence[GlobalValue], start: int) -> None:
        """Collectives that an operation was written with, from ``start`` on, are of its largest operand."""
        op = decided.op
        own = [i for i in self.em.instructions[start:] if i.opcode in COLLECTIVES]
        if not own or not operands or op.opcode in COLLECTIVES:
            return
        v = max(operands, key=lambda v: v.shape.nbytes)
        cause = Cause(v.name, v.shape, op.metadata, v.layout, v.layout, self.context.table, op, decided)
        for i in own:
            old = i.origin or Origin(f"{op.opcode} %{op.name} exchanges the elements it reads", "own")
            i.origin = Origin(old.reason, old.rule, old.value or v.name, old.axes, old.causes or (cause,))

    def planned_why(self, op: Instruction) -> str:
        """What to tell of an operation that a region has decided about."""
        why = self.context.plan.why.get(op)
        return f" ({why})" if why else ""

    def _finish_now(self, value: GlobalValue) -> None:
        """Reduce a partial value whose reduction cannot be put off."""
        self.get(value, value.wanted, "the reduction gives")
        value.forms.pop(value.layout)
        value.layout = value.wanted

    def _why_partial(self, op: Instruction, site: LocalSite, operands: Sequence[GlobalValue]) -> dict[int, str]:
        """The reason of a partial result over each axis, told when it is reduced over that."""
        carried = {a: text for v in operands for a, text in v.why.items()} if site.choice.carried else {}
        factors = site.rule.of_kind(FactorKind.REDUCTION)
        atoms = tuple(a for f in factors for a in site.choice.factors[f])
        word = {"dot": "contracted", "convolution": "contracted", "gather": "looked-up", "scatter": "update"}
        names = _text(self.context.table.axis_names(atoms))
        own = f"the {word.get(op.opcode, 'reduced')} dimension of {op.opcode} %{op.name} is split over {names}"
        return carried | dict.fromkeys(atoms, own)


def _maker(decided: SplitDecision, operands: Sequence[GlobalValue]) -> SplitDecision | None:
    """The decision that made a result partial: the operation's own, or that of a partial operand it carries on."""
    own = any(decided.choice.factors[f] for f in decided.problem.rule.of_kind(FactorKind.REDUCTION))
    return decided if own else next((v.made for v in operands if v.made is not None), None)


def _operand(value: GlobalValue, repetitions: int, reader: Instruction) -> SplitOperand:
    free = value.remake is not None
    layouts = (value.layout,) if free else (value.layout, *(x for x in value.forms if x is not value.layout))
    return SplitOperand(
        value.shape.dims,
        value.shape.dtype.nbytes,
        layouts,
        value.wanted,
        free,
        value.uses > 1,
        repetitions,
        find_pieces_read(reader, value.shape.dims, repetitions),
    )


def _partial_with(operands: Sequence[GlobalValue], group: tuple[int, ...], reduction: str, aim: Atoms) -> bool:
    """Whether the operands of ``group`` are partial with ``reduction``, or made at will, and at least one of them is
    partial.

    Where the result is wanted partial over ``aim``, whole ones may be kept by one member.
    """
    members = [operands[i] for i in group]
    partial = [v for v in members if v.layout.unreduced]
    made = bool(aim) or all(v.layout.unreduced or v.remake is not None for v in members)
    return bool(partial) and made and all(v.layout.reduction == reduction for v in partial)


def _text(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "no axis"
