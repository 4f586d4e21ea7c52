"""The solver of plans: how much processor time it takes, and how far its answers are from their bounds.

    python benchmarks/plan_solving.py [DEVICES]

Each program is posed with the arguments of its first hand plan annotated, and with nothing annotated; without a limit
of memory, and with a tenth less memory for values than the plan takes that is found then.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

from plan_language import LANGUAGE_PLANS
from plan_networks import NETWORKS_PLANS
from plan_programs import HandPlan, PlanProgram, planned, size_for
from tables import table

from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.free_interface import find_free_interface
from shardc.partitioner.partition import OPENING
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.strategy.solve.problem import ChosenOptions
from shardc.partitioner.strategy.solve.solve import solve_choice

HEAD = ("program", "annotated", "variables", "pairs of options", "seconds", "gap", "within memory: seconds", "gap")

MACHINE = "h100-dgx"
#: Goals of the solver: the gap, and the share of problems on which it is reached.
GAP, SHARE = 0.01, 0.9


def _pose(program: PlanProgram, devices: int, plan: HandPlan | None) -> LayoutQuestion:
    bare = None if plan is None else HandPlan(plan.name, plan.arguments)
    annotated = planned(program, size_for(devices), bare)
    free = None if plan else find_free_interface(annotated.module)
    opened = run_pipeline(annotated.propagate().module, OPENING, Config())
    return pose_question(opened, load_machine(MACHINE), free)


def _questions(program: PlanProgram, devices: int) -> Iterator[tuple[HandPlan | None, LayoutQuestion]]:
    """With the arguments of the first plan that divides them evenly, and with nothing annotated."""
    for plan in program.plans:
        try:
            question = _pose(program, devices, plan)
        except InputError as error:
            print(program.name, plan.name, error.what, sep=": ", file=sys.stderr)
        else:
            yield plan, question
            break
    yield None, _pose(program, devices, None)


def _solve(question: LayoutQuestion, limit: float) -> tuple[ChosenOptions, float, float]:
    """The answer, its seconds, and the most memory that it takes."""
    merged = merge_equal(question.as_choice(limit))
    begun = time.process_time()
    answer = solve_choice(merged.problem)
    seconds = time.process_time() - begun
    peak = question.memory.peak(merged.expand(answer.choice)) if answer.choice is not None else math.nan
    return answer, seconds, peak


def _gap(answer: ChosenOptions) -> str:
    if answer.choice is None or answer.excess is not None:
        return "none fits"
    return f"{answer.gap:.2%}"


def section(devices: int = 64) -> str:
    """The table, and how many gaps are within the goal."""
    rows: list[tuple[str, ...]] = []
    gaps: list[float] = []
    slowest = 0.0
    for program in (*LANGUAGE_PLANS, *NETWORKS_PLANS):
        for plan, question in _questions(program, devices):
            problem = question.as_choice(math.inf)
            answer, seconds, peak = _solve(question, math.inf)
            given = question.memory.given
            within, longer, _ = _solve(question, given + 0.9 * (peak - given))
            gaps += [a.gap for a in (answer, within) if a.choice is not None and a.excess is None]
            slowest = max(slowest, seconds, longer)
            pairs = sum(p.table.size for p in problem.pairs)
            told = (plan.name if plan else "nothing", f"{len(problem.costs):,}", f"{pairs:,}")
            rows.append((program.name, *told, f"{seconds:.1f}", _gap(answer), f"{longer:.1f}", _gap(within)))
            print(*rows[-1], sep=" | ", flush=True)
    near = sum(g <= GAP for g in gaps)
    text = (
        f"{devices} devices, {MACHINE}. {near} of {len(gaps)} gaps are at most {GAP:.0%} (goal: {SHARE:.0%} of them);"
    )
    return f"{text} the longest solution took {slowest:.1f} s.\n\n{table(HEAD, rows)}"


if __name__ == "__main__":
    print(section(*map(int, sys.argv[1:])))
