"""Random plans of a program, and how well one figure of theirs ranks another.

A plan is a choice of the posed problem: the cheapest one found, with a random share of its decisions drawn anew.
Equal decisions are drawn together, as they are decided.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardc
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import OPENING, pipeline
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import pose_question
from shardc.partitioner.strategy.solve.solve import solve_choice
from shardc.stages.stages import Partitioned

__all__ = ["RandomPlan", "random_plans", "rank_correlation"]


@dataclass(frozen=True)
class RandomPlan:
    """``cost`` is what the posed problem says of it: seconds on a machine, else bytes; ``share`` what was drawn.

    ``chosen`` does as the choice says, operation by operation. For ``written`` its layouts were written onto the
    program, and the partitioner then decided anew around what is moved.
    """

    chosen: Partitioned
    written: Partitioned
    cost: float
    share: float


def random_plans(program: shardc.Program, machine: str | None, count: int, seed: int = 0) -> Iterator[RandomPlan]:
    """The cheapest choice first, then ``count`` - 1 random ones, different from each other; fewer where there are
    fewer. Costs are those of ``machine`` (None: bytes)."""
    r = random.Random(seed)
    described = None if machine is None else load_machine(machine)
    propagated = program.propagate()
    question = pose_question(run_pipeline(propagated.module, OPENING, Config()), described)
    merged = merge_equal(question.as_choice(math.inf))
    problem = merged.problem
    best = solve_choice(problem).choice
    assert best is not None
    known: set[tuple[int, ...]] = set()
    for n in range(4 * count):
        share = n and r.random()
        drawn = tuple(
            r.randrange(len(c)) if r.random() < share else k for k, c in zip(best, problem.costs, strict=True)
        )
        if drawn in known or not math.isfinite(problem.cost(drawn)):
            continue
        known.add(drawn)
        choice = merged.expand(drawn)
        chosen, written = (
            run_pipeline(question.answer(choice), pipeline(described, PartitionOptions(), splits), Config())
            for splits in (question.splits(choice), None)
        )
        yield RandomPlan(
            Partitioned(propagated, chosen, {}), Partitioned(propagated, written, {}), problem.cost(drawn), share
        )
        if len(known) == count:
            return


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: 1 where both put things in the same order, 0 where one says nothing about the other."""
    if min(len(set(a)), len(set(b))) < 2:
        return math.nan
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> Any:
    """Places in order; equal values have the middle of their places."""
    _, inverse, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
