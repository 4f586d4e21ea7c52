"""What all computations of one partitioning share: axes, found paths, made choices, partitioned callees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.custom_calls import has_manual_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, Sharding
from shardc.hlo.ir.types import DTYPES, DType
from shardc.partitioner.emit.emitter import Reducers
from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable
from shardc.partitioner.emit.names import NameSupply
from shardc.partitioner.reshard.moves import Cost
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.rewrite.manual import find_differing_axes
from shardc.partitioner.strategy.choose import SplitChoice, SplitProblem, choose_split
from shardc.partitioner.strategy.decisions import ChosenSplits, LayoutPlan, PlannedSplit
from shardc.partitioner.strategy.pieces import count_repetitions
from shardc.partitioner.strategy.values import PartialAxes
from shardc.partitioner.unreduced.linear import LinearGroups

__all__ = ["CalleeSignature", "Context"]


@dataclass(frozen=True, slots=True)
class CalleeSignature:
    """A called computation and the layouts of its parameters' and results' leaves."""

    computation: Computation
    parameters: tuple[tuple[AxisLayout, ...], ...]
    results: tuple[AxisLayout, ...]


@dataclass(slots=True)
class Context:
    """See the module docstring; make one with `Context.over`.

    ``manual``: the program has manual computations. ``barred``: the atoms over which an operation cannot be split
    (`find_differing_axes`). ``partial``: how values were partial when they were made last.
    ``spent``: what local computations send. ``states``: the layouts of loops, conditionals and their parameters, by
    the computation that they are in. ``plan``: what was decided for the whole program at once.
    ``linear``: what operations pass on of partial values. ``repetitions``: of elements that loops only read pieces of
    (`count_repetitions`). ``arguments``: the names that people gave parameters, by parameter.
    """

    table: AxisTable
    resharder: Resharder
    names: NameSupply
    computation_names: NameSupply
    manual: bool = False
    barred: Mapping[Instruction, Atoms] = field(default_factory=dict)
    repetitions: Mapping[Instruction, int] = field(default_factory=dict)
    reducers: Reducers = field(default_factory=Reducers)
    callees: dict[CalleeSignature, Computation] = field(default_factory=dict)
    partial: dict[Instruction, PartialAxes] = field(default_factory=dict)
    spent: dict[Computation, Cost] = field(default_factory=dict)
    loops: dict[tuple[Instruction, tuple[AxisLayout, ...]], Instruction] = field(default_factory=dict)
    states: dict[tuple[CalleeSignature, Instruction], tuple[AxisLayout, ...]] = field(default_factory=dict)
    plan: LayoutPlan = field(default_factory=LayoutPlan)
    linear: LinearGroups = field(default_factory=LinearGroups)
    arguments: Mapping[str, str] = field(default_factory=dict)
    _choices: dict[SplitProblem, SplitChoice] = field(default_factory=dict)

    @staticmethod
    def over(mesh: Mesh, module: Module, machine: Machine | None = None, known: ChosenSplits | None = None) -> Context:
        """A context for partitioning ``module`` over ``mesh``, for the least time on a ``machine`` if one is given;
        by what was chosen, where it is ``known`` and in the terms of this program."""
        table = AxisTable(mesh, _shardings(module), _index_type(module))
        resharder = Resharder(table, machine)
        if known is not None and known.serves(table):
            resharder, table = known.resharder, known.resharder.table
        else:
            known = None
        names = NameSupply(i.name for i in module.instructions())
        return Context(
            table,
            resharder,
            names,
            NameSupply(),
            has_manual_computation(module),
            _barred(table, module),
            count_repetitions(module),
            plan=known.plan_for(module) if known else LayoutPlan(),
            arguments={p.name: n for p, n in zip(module.parameters, module.arg_names, strict=False) if n},
            _choices=known.found if known else {},
        )

    def shared(self, splits: Mapping[tuple[str, str], PlannedSplit] | None = None) -> ChosenSplits:
        """What other programs may take over: ``splits``, and what was found out."""
        return ChosenSplits(self.resharder, splits or {}, self._choices)

    def following(self, plan: LayoutPlan) -> Context:
        """A context for writing the same module by a plan."""
        return Context(
            self.table,
            self.resharder,
            self.names.anew(),
            NameSupply(),
            self.manual,
            self.barred,
            self.repetitions,
            self.reducers,
            partial=dict(self.partial),
            plan=plan,
            linear=self.linear,
            arguments=self.arguments,
            _choices=self._choices,
        )

    def barred_of(self, op: Instruction) -> Atoms:
        """The atoms over which ``op`` cannot be split; of one that rules have rewritten, those of its operands."""
        if not self.barred:
            return ()
        return self.barred.get(op) or tuple(sorted({a for o in op.operands for a in self.barred.get(o, ())}))

    def layouts(self, op: Instruction, *, partial: bool = False) -> tuple[AxisLayout, ...]:
        """The propagated layouts of an instruction's leaves, partial values reduced unless they may stay ``partial``.

        What is placed on one device is whole on every device: each of them can do what that one would.
        """
        where = f"%{op.name}" + (f" ({op.source})" if op.source else "")
        table = self.table
        kept = (lambda layout: layout) if partial else table.reduced
        return tuple(
            table.replicated(leaf.rank) if s.mesh.is_maximal else kept(table.from_sharding(s, where))
            for s, leaf in zip(op.leaf_shardings(), op.shape.leaves(), strict=True)
        )

    def choice(self, problem: SplitProblem) -> SplitChoice:
        """The best choice for a problem, remembered."""
        found = self._choices.get(problem)
        if found is None:
            found = self._choices[problem] = choose_split(self.table, self.resharder, problem)
        return found


#: Positions with padding, holes and margins are a few times the longest dimension.
_SHORT = 1 << 28


def _index_type(module: Module) -> DType:
    """s32, or s64 where a dimension is too long for it."""
    shapes = {leaf for i in module.instructions() for leaf in i.shape.leaves()}
    return DTYPES["s32" if all(n < _SHORT for s in shapes for n in s.dims) else "s64"]


def _barred(table: AxisTable, module: Module) -> dict[Instruction, Atoms]:
    atoms: dict[frozenset[str], Atoms] = {}
    made: dict[Instruction, Atoms] = {}
    for i, axes in find_differing_axes(module).items():
        if axes not in atoms:
            atoms[axes] = table.atoms(AxisRef(name) for name in table.mesh.axis_names if name in axes)
        made[i] = atoms[axes]
    return made


def _shardings(module: Module) -> Iterator[Sharding]:
    for i in module.instructions():
        given = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        yield from (s for s in given if isinstance(s, Sharding))
