"""A plan for a program over one mesh: layouts are chosen, written as few annotations, and what those give is simulated.

Nothing is told of a plan but what its annotations come to: the annotated program is partitioned and simulated like any
other. Where that takes more memory than there is, the next plan is made for as much less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.auto.opened_program import OpenedProgram, open_program
from shardc.analysis.auto.write_plan import write_plan
from shardc.analysis.auto.written_plan import WrittenPlan
from shardc.analysis.simulate.simulate_program import simulate_partitioned
from shardc.analysis.simulate.simulation import Simulation
from shardc.costs.machines.machine import load_machine
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.progress import detail
from shardc.partitioner.plan.merge_equal import merge_equal
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram
from shardc.partitioner.strategy.solve.problem import ChosenOptions
from shardc.partitioner.strategy.solve.solve import solve_choice

__all__ = ["AnnotatedProgram", "PlanSearch"]

#: How many plans for less and less memory are carried out.
_ROUNDS = 3


@dataclass(frozen=True)
class AnnotatedProgram:
    """A program with annotations, ``written`` ones where it has a plan's, and the simulated step that it has."""

    program: SourceProgram
    partitioned: PartitionedProgram
    simulation: Simulation
    written: WrittenPlan | None = None

    def fits(self, memory: float) -> bool:
        return self.simulation.peak_bytes <= memory

    def is_better(self, other: AnnotatedProgram, memory: float) -> bool:
        """Within the memory, and faster than what is within it, too; else with less memory."""
        if not (self.fits(memory) and other.fits(memory)):
            return self.fits(memory) or (
                not other.fits(memory) and self.simulation.peak_bytes < other.simulation.peak_bytes
            )
        return self.simulation.step_seconds < other.simulation.step_seconds


@dataclass(slots=True)
class PlanSearch:
    """The search over the mesh of ``program``, whose annotations stay; within ``memory`` bytes per device."""

    program: SourceProgram
    machine: str
    memory: float
    propagated: PropagatedProgram
    opened: OpenedProgram
    question: LayoutQuestion
    best: ChosenOptions

    @staticmethod
    def begin(program: SourceProgram, machine: str, memory: float) -> PlanSearch:
        """Pose the question and choose within the memory, as models know it."""
        propagated = program.propagate()
        outcome = propagated.outcome
        if outcome is None:
            raise UnsupportedError(
                "the program is partitioned already: there is nothing to choose",
                fix="give the program as it was before",
            )
        opened = open_program(propagated, outcome)
        question = pose_question(opened.module, load_machine(machine))
        return PlanSearch(program, machine, memory, propagated, opened, question, _solve(question, memory, None))

    def found(self) -> AnnotatedProgram | None:
        """The best plan; None where nothing is allowed."""
        best: AnnotatedProgram | None = None
        answer, limit = self.best, self.memory
        for _ in range(_ROUNDS):
            if answer.choice is None:
                break
            made = self.carry_out(answer.choice)
            if best is None or made.is_better(best, self.memory):
                best = made
            if made.fits(self.memory):
                break
            limit = min(limit, self.question.memory.peak(answer.choice)) * self.memory / made.simulation.peak_bytes
            answer = _solve(self.question, limit, answer.choice)
        return best

    def carry_out(self, choice: Sequence[int]) -> AnnotatedProgram:
        """The program with the fewest annotations that lead to the layouts of ``choice``."""
        wanted = self.opened.layouts(self.question.answer(choice))
        written = write_plan(self.propagated, wanted)
        detail("%d annotations over %s", len(written.specs), written.mesh)
        return annotated(self.program, self.machine, written.annotations(), written)

    def as_given(self) -> AnnotatedProgram:
        """The program with its own annotations only."""
        return annotated(self.program, self.machine, {})


def annotated(
    program: SourceProgram, machine: str, specs: Mapping[str, str], written: WrittenPlan | None = None
) -> AnnotatedProgram:
    """``program`` with ``specs``, partitioned for ``machine`` and simulated on it."""
    program = program.annotate(specs) if specs else program
    partitioned = program.partition(machine=machine)
    simulation = simulate_partitioned(partitioned, machine, ignore_memory=True)
    return AnnotatedProgram(program, partitioned, simulation, written)


def _solve(question: LayoutQuestion, limit: float, start: Sequence[int] | None) -> ChosenOptions:
    """The best choice found within ``limit`` bytes, or the one nearest to them."""
    merged = merge_equal(question.as_choice(limit))
    answer = solve_choice(merged.problem, None if start is None else merged.collapse(start))
    if answer.choice is None:
        return answer
    return replace(answer, choice=merged.expand(answer.choice))
