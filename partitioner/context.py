"""What all computations of one partitioning share: axes, found paths, made choices, partitioned callees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardc.hlo.ir import Computation, Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import Sharding
from shardc.partitioner.choose import Choice, Problem, choose
from shardc.partitioner.emitter import Reducers
from shardc.partitioner.layout import AxisTable, Layout
from shardc.partitioner.names import Names
from shardc.partitioner.reshard import Resharder

__all__ = ["Context", "Signature"]


@dataclass(frozen=True, slots=True)
class Signature:
    """A called computation and the layouts of its parameters' and results' leaves."""

    computation: Computation
    parameters: tuple[tuple[Layout, ...], ...]
    results: tuple[Layout, ...]


@dataclass(slots=True)
class Context:
    """See the module docstring; make one with `Context.over`."""

    table: AxisTable
    resharder: Resharder
    names: Names
    computation_names: Names
    reducers: Reducers = field(default_factory=Reducers)
    callees: dict[Signature, Computation] = field(default_factory=dict)
    _choices: dict[Problem, Choice] = field(default_factory=dict)

    @staticmethod
    def over(mesh: Mesh, module: Module) -> Context:
        """A context for partitioning ``module`` over ``mesh``."""
        table = AxisTable(mesh, _shardings(module))
        names = Names(i.name for i in module.instructions())
        return Context(table, Resharder(table), names, Names())

    def choice(self, problem: Problem) -> Choice:
        """The best choice for a problem, remembered."""
        found = self._choices.get(problem)
        if found is None:
            found = self._choices[problem] = choose(self.table, self.resharder, problem)
        return found


def _shardings(module: Module) -> Iterator[Sharding]:
    for i in module.instructions():
        given = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        yield from (s for s in given if isinstance(s, Sharding))
