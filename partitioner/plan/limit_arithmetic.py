"""Plans that do no more arithmetic: what no such choice has goes before anything is solved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardc.costs.ops.table import instruction_flops
from shardc.partitioner.plan.layout_problem import LayoutProblem
from shardc.partitioner.plan.node_options import MemberOptions
from shardc.partitioner.regions.region_graph import DecisionNode, NodeOption

__all__ = ["limit_arithmetic", "node_flops"]


def limit_arithmetic(problem: LayoutProblem, most: float) -> LayoutProblem:
    """``problem`` without the options that come to more than ``most`` operations of a device though all else does the
    least that it can; all of them where even that is more: then the program is done in other operations than these."""
    flops = [
        np.sum([node_flops(n, m) for n, m in zip(c.members, members, strict=True)], axis=0)
        for c, members in zip(problem.clusters, problem.members, strict=True)
    ]
    room, costs = most - sum(float(f.min()) for f in flops), list(problem.costs)
    if room < 0:
        return problem
    for k, done in enumerate(flops):
        if done.max() - done.min() > room:
            costs[k] = np.where(done - done.min() > room, np.inf, costs[k])
    return replace(problem, costs=costs)


def node_flops(node: DecisionNode, members: MemberOptions) -> NDArray[np.float64]:
    """The operations of a node on a device, in each of its options."""
    whole = instruction_flops(node.op) * node.times if node.strategies else 0.0
    if not whole:
        return np.zeros(len(members.options))
    return whole * np.array([_share(node, o) for o in members.options])


def _share(node: DecisionNode, option: NodeOption) -> float:
    """The part of an operation's iterations that one device goes through."""
    factors = node.strategies[option.strategy].problem.rule.factors
    return option.work / max(float(np.prod([float(f.size) for f in factors])), 1.0)
