"""What all computations of one partitioning share: axes, found paths, made choices, partitioned callees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardc.costs.machines.machine import Machine
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import DTYPES, DType
from shardc.partitioner.emit.emitter import Reducers
from shardc.partitioner.emit.layout import AxisTable, Layout
from shardc.partitioner.emit.names import Names
from shardc.partitioner.reshard.moves import Cost
from shardc.partitioner.reshard.search import Resharder
from shardc.partitioner.rewrite.manual import has_manual
from shardc.partitioner.strategy.choose import Choice, Problem, choose
from shardc.partitioner.strategy.decisions import Plan
from shardc.partitioner.strategy.pieces import repetitions
from shardc.partitioner.strategy.values import Partial
from shardc.partitioner.unreduced.linear import Linear

__all__ = ["Context", "Signature"]


@dataclass(frozen=True, slots=True)
class Signature:
    """A called computation and the layouts of its parameters' and results' leaves."""

    computation: Computation
    parameters: tuple[tuple[Layout, ...], ...]
    results: tuple[Layout, ...]


@dataclass(slots=True)
class Context:
    """See the module docstring; make one with `Context.over`.

    ``manual``: the program has manual computations. ``partial``: how values were partial when they were made last.
    ``spent``: what local computations send. ``states``: the layouts of loops, conditionals and their parameters, by
    the computation that they are in. ``plan``: what was decided for the whole program at once.
    ``linear``: what operations pass on of partial values. ``repetitions`` are those of `repetitions` in `invariants`.
    """

    table: AxisTable
    resharder: Resharder
    names: Names
    computation_names: Names
    manual: bool = False
    repetitions: Mapping[Instruction, int] = field(default_factory=dict)
    reducers: Reducers = field(default_factory=Reducers)
    callees: dict[Signature, Computation] = field(default_factory=dict)
    partial: dict[Instruction, Partial] = field(default_factory=dict)
    spent: dict[Computation, Cost] = field(default_factory=dict)
    loops: dict[tuple[Instruction, tuple[Layout, ...]], Instruction] = field(default_factory=dict)
    states: dict[tuple[Signature, Instruction], tuple[Layout, ...]] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)
    linear: Linear = field(default_factory=Linear)
    _choices: dict[Problem, Choice] = field(default_factory=dict)

    @staticmethod
    def over(mesh: Mesh, module: Module, machine: Machine | None = None) -> Context:
        """A context for partitioning ``module`` over ``mesh``, for the least time on a ``machine`` if one is given."""
        table = AxisTable(mesh, _shardings(module), _index_type(module))
        names = Names(i.name for i in module.instructions())
        return Context(table, Resharder(table, machine), names, Names(), has_manual(module), repetitions(module))

    def following(self, plan: Plan) -> Context:
        """A context for writing the same module by a plan."""
        return Context(
            self.table,
            self.resharder,
            self.names.anew(),
            Names(),
            self.manual,
            self.repetitions,
            self.reducers,
            partial=dict(self.partial),
            plan=plan,
            linear=self.linear,
            _choices=self._choices,
        )

    def layouts(self, op: Instruction) -> tuple[Layout, ...]:
        """The propagated layouts of an instruction's leaves, partial values reduced.

        What is placed on one device is whole on every device: each of them can do what that one would.
        """
        where = f"%{op.name}" + (f" ({op.source})" if op.source else "")
        table = self.table
        return tuple(
            table.replicated(leaf.rank) if s.mesh.is_maximal else table.reduced(table.from_sharding(s, where))
            for s, leaf in zip(op.leaf_shardings(), op.shape.leaves(), strict=True)
        )

    def choice(self, problem: Problem) -> Choice:
        """The best choice for a problem, remembered."""
        found = self._choices.get(problem)
        if found is None:
            found = self._choices[problem] = choose(self.table, self.resharder, problem)
        return found


#: Positions with padding, holes and margins are a few times the longest dimension.
_SHORT = 1 << 28


def _index_type(module: Module) -> DType:
    """s32, or s64 where a dimension is too long for it."""
    shapes = {leaf for i in module.instructions() for leaf in i.shape.leaves()}
    return DTYPES["s32" if all(n < _SHORT for s in shapes for n in s.dims) else "s64"]


def _shardings(module: Module) -> Iterator[Sharding]:
    for i in module.instructions():
        given = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        yield from (s for s in given if isinstance(s, Sharding))
