"""What plans are chosen by beside what is simulated of them: where modelled seconds and simulated ones differ.

    python benchmarks/plan_costs.py [--devices 4,64] [--programs TEXT,TEXT]

For every program of `plan_language` and `plan_networks`, the cheapest plan from each hand plan's annotations and from
none, in as much memory as it likes. Modelled are arithmetic and memory (*work*), *moves* and what of them is *hidden*;
simulated are the kernels without their launches (*work*), the *launches*, collectives one by one (*moves*) and what of
them is *hidden*. All are milliseconds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from typing import Any

from plan_programs import HandPlan, PlanProgram, planned, size_for
from plan_set import PLANS
from tables import table

from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.free_interface import FreeInterface, find_free_interface
from shardc.partitioner.partition import PREPARATION, partition
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.regions.region_graph import Wire, moved
from shardc.partitioner.rewrite.preferred_partials import partial_of, with_partial
from shardc.stages.stages import Partitioned

__all__ = ["HEAD", "rows"]

HEAD = (
    "program", "devices", "annotated", "modelled", "work", "moves", "hidden", "simulated", "work", "launches", "moves",
    "hidden",
)  # fmt: skip
_MACHINE = "h100-dgx"


def rows(program: PlanProgram, devices: int) -> Iterator[tuple[str, ...]]:
    """A row per hand plan, and one from nothing."""
    for plan in (*program.plans, None):
        found = (*_modelled_and_simulated(program, devices, plan),)
        name = plan.name if plan else "nothing"
        yield program.name, str(devices), name, *(f"{1e3 * x:.4g}" for x in found)


def _modelled_and_simulated(program: PlanProgram, devices: int, plan: HandPlan | None) -> Iterator[float]:
    machine = load_machine(_MACHINE)
    source = planned(program, size_for(devices), plan)
    free = find_free_interface(source.module) if plan is None else FreeInterface()
    propagated = source.propagate()
    question = pose_question(run_pipeline(propagated.module, PREPARATION, Config()), machine, free)
    choice = question.solve(math.inf).choice
    assert choice is not None
    cost, whole = (q.as_choice(math.inf).cost(choice) for q in (question, question.unhidden()))
    sent = sum(_moves(question, choice))
    yield from (cost, whole - sent, sent, whole - cost)
    partitioned = Partitioned(propagated, partition(question.answer(choice), machine=machine), {})
    step: Any = partitioned.simulate(_MACHINE, ignore_memory=True)
    kernels = sum(w.count for w in step.work if w.kind != "collective" and w.seconds)
    launches = kernels * (machine.device.launch_seconds + machine.device.memory_latency)
    moves = sum(w.count * w.seconds for w in step.work if w.kind == "collective")
    yield from (step.step_seconds, step.compute_seconds - launches, launches, moves, moves - step.exposed_seconds)


def _moves(question: LayoutQuestion, choice: Sequence[int]) -> Iterator[float]:
    """What each move of a choice takes by itself."""
    problem, resharder = question.problem, question.context.resharder
    options = problem.options(choice)

    def brought(wire: Wire) -> Iterator[tuple[AxisLayout, AxisLayout]]:
        start = wire.given if wire.producer is None else options[wire.producer].results[wire.slot]
        if wire in problem.common:
            hub, forms = problem.common[wire]
            yield start, forms[choice[hub]]
            start = forms[choice[hub]]
        wanted = (r.want() if r.node is None else options[r.node].operands[r.slot] for r in wire.readers)
        yield from ((start, x) for x in dict.fromkeys(wanted))

    for wire in question.graph.wires:
        for start, want in brought(wire) if not wire.made else ():
            dims, times = moved(wire, (start, want))
            seconds = times * resharder.expect(dims, wire.nbytes, start, want)
            partial = partial_of(start)
            if wire in question.reductions and partial is not None and not want.unreduced:
                sums = with_partial(question.context.table, want, partial)
                inside, behind = (resharder.expect(wire.dims, wire.nbytes, *x) for x in ((start, sums), (sums, want)))
                seconds = min(seconds, wire.times * inside + question.reductions[wire] * behind)
            yield seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="4")
    parser.add_argument("--programs", default="")
    options = parser.parse_args()
    names = options.programs.split(",")
    chosen = [p for p in PLANS if any(n in p.name for n in names)]
    print(table(HEAD, [row for d in options.devices.split(",") for p in chosen for row in rows(p, int(d))]))


if __name__ == "__main__":
    main()
