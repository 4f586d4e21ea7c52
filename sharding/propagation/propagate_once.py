"""One round of propagation over a program as it stands: nothing is prepared before, nothing closed after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.propagation.engine import Engine
from shardc.sharding.propagation.export import PropagationOutcome
from shardc.sharding.propagation.flow import build_graph
from shardc.sharding.propagation.groups import join_groups
from shardc.sharding.propagation.options import PropagationOptions

__all__ = ["PropagateOnce"]


@dataclass(frozen=True, slots=True)
class PropagateOnce:
    """Spread the shardings that a program has through its operations, leaving open what is open.

    ``edges``: values flow through loops, branches and manual computations everywhere (``all``), or where the program
    has written data-flow edges (``written``). Nothing flows through calls.
    """

    options: PropagationOptions = field(default_factory=PropagationOptions)
    edges: Literal["all", "written"] = "all"

    name: str = "propagate-once"
    why: str = "what is sharded on one side of an operation can often be sharded on the other"

    def run(self, module: Module) -> Module:
        """The module with a sharding on every instruction that had one or got one."""
        return self.outcome(module).as_written(closed=False, edges_sunk=self.edges != "written")

    def outcome(self, module: Module) -> PropagationOutcome:
        """What was decided, value by value."""
        written = self.edges == "written"
        mesh = module.mesh or Mesh()
        graph = build_graph(module, mesh, self.options, written_edges=written, follow_calls=False)
        join_groups(graph)
        graph.link()
        engine = Engine(graph, self.options)
        engine.run()
        return PropagationOutcome(
            module, module, {}, graph, engine.shardings, engine.changed, self.options, engine.shardings
        )
