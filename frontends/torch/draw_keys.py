"""The keys of a program's random numbers: one for each draw of one call, by JAX's counter-based generator.

A number follows from the key of the call, the number of the draw in the graph, and its position. So a program draws the
same numbers on every mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Draws", "draws_numbers"]


@dataclass
class Draws:
    """The keys of one call's draws, in the graph's order, from the key ``of_call``."""

    jax: Any
    of_call: Any
    drawn: int = 0

    @staticmethod
    def of_seed(jax: Any, seed: Any, call: Any) -> Draws:
        """The draws of call number ``call`` of a program that began with ``seed``: whole numbers, traced or not."""
        key = jax.random.key(seed, impl="threefry2x32")
        return Draws(jax, jax.random.fold_in(key, jax.numpy.asarray(call).astype(jax.numpy.uint32)))

    def key(self) -> Any:
        """The key of the next draw."""
        self.drawn += 1
        return self.jax.random.fold_in(self.of_call, self.drawn - 1)


def draws_numbers(torch: Any, graph_module: Any) -> bool:
    """Whether a graph, or one that it calls, draws random numbers."""
    graphs = (m.graph for m in graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    seeded = torch.Tag.nondeterministic_seeded
    return any(seeded in getattr(n.target, "tags", ()) for g in graphs for n in g.nodes)
