"""The choice that is nearest to given layouts of values, such as the propagated ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.plan.layout_problem import LayoutProblem
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.regions.region_graph import Wire
from shardc.partitioner.strategy.solve.problem import Numbers

__all__ = ["nearest_choice", "with_common_forms"]

#: What a partial value counts that becomes the wanted one.
_PARTIAL = 0.9


def nearest_choice(question: LayoutQuestion, layout_of: Callable[[Wire], AxisLayout]) -> tuple[int, ...]:
    """For each decision, the option with the most bytes in the layouts of ``layout_of``; of equal options, the
    cheapest."""
    problem, reduced = question.problem, question.context.table.reduced
    found: list[int] = []
    for cluster, members, cost in zip(problem.clusters, problem.members, problem.costs, strict=False):
        like: Numbers = np.zeros(len(cost))
        for node, m in zip(cluster.members, members, strict=True):
            sides = [(w, m.wants(slot)) for slot, w in enumerate(node.operands)]
            for wire, layouts in (*sides, *((w, m.starts(w.slot)) for w in node.results)):
                want, size = layout_of(wire), float(wire.nbytes * np.prod(wire.dims))
                like += [size * (1 if x is want else _PARTIAL * (reduced(x) is want)) for x in layouts]
        like[~np.isfinite(cost)] = -1
        found.append(int(np.lexsort((cost, -like))[0]))
    return with_common_forms(problem, found)


def with_common_forms(problem: LayoutProblem, clusters: list[int]) -> tuple[int, ...]:
    """The choice of the ``clusters``' options, with the cheapest common forms for them."""
    found = [*clusters, *[0] * (len(problem.costs) - len(clusters))]
    costs = {hub: problem.costs[hub].copy() for hub, _ in problem.common.values()}
    for p in problem.pairs:
        if p.first in costs:
            costs[p.first] += p.table[:, found[p.second]]
        elif p.second in costs:
            costs[p.second] += p.table[found[p.first]]
    for hub, cost in costs.items():
        found[hub] = int(cost.argmin())
    return tuple(found)
