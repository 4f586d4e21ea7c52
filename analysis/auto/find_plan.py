"""A plan for a program over one mesh: layouts are chosen, written as few annotations, and what those give is simulated.

Nothing is told of a plan but what its annotations come to: the annotated program is partitioned and simulated like any
other. The modelled best plan is tried, and some that follow patterns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.auto.find_state import find_state
from shardc.analysis.auto.opened_program import OpenedProgram, open_program
from shardc.analysis.auto.release import Released, release
from shardc.analysis.auto.write_plan import own_plan, write_plan
from shardc.analysis.auto.written_plan import PlanSpec, WrittenPlan
from shardc.analysis.simulate.judge_of import judge_of
from shardc.analysis.simulate.simulate_program import simulate_partitioned
from shardc.analysis.simulate.simulation import Simulation
from shardc.costs.machines.machine import load_machine
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.progress import detail
from shardc.hlo.units import seconds_text
from shardc.partitioner.free_interface import find_free_interface
from shardc.partitioner.plan.explain_plan import explain_plan
from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question
from shardc.partitioner.plan.plan_reasons import PlanReasons
from shardc.partitioner.plan.plan_trials import CarriedPlan, PlanTrials
from shardc.partitioner.plan.seeds.find_seeds import find_seeds, find_state_seeds
from shardc.partitioner.program import PartitionedProgram, PropagatedProgram, SourceProgram
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["AnnotatedProgram", "PlanSearch"]

#: How many plans within corrected limits of memory are carried out, and how many that follow patterns; the same again
#: with state spread, and again of those that say only which axes split the state.
_ROUNDS, _SEEDS = 3, 2
#: Annotations are left out as long as a step takes no longer than by this factor, and needs no more memory by that one.
#: So little time counts less than so much memory.
_LONGER, _LARGER = 1.01, 1.25
#: So many programs with fewer annotations are tried.
_SHORTER = 8


@dataclass(frozen=True)
class AnnotatedProgram:
    """A program with the annotations of a plan, and the simulated step that it has.

    ``answer`` are the layouts that they were written for, within ``limit`` bytes as models count them; None: it has its
    own annotations only.
    """

    program: SourceProgram
    partitioned: PartitionedProgram
    simulation: Simulation
    written: WrittenPlan
    answer: ChosenOptions | None = None
    limit: float = math.inf

    @property
    def judged(self) -> Judgement:
        return Judgement((self.simulation.step_seconds,), float(self.simulation.peak_bytes))

    def fits(self, memory: float) -> bool:
        return self.simulation.peak_bytes <= memory

    def is_better(self, other: AnnotatedProgram, memory: float) -> bool:
        """Within the memory, and faster than what is within it, too; else with less memory."""
        if self.fits(memory) != other.fits(memory):
            return self.fits(memory)
        if self.fits(memory):
            return self.simulation.step_seconds < other.simulation.step_seconds
        return self.simulation.peak_bytes < other.simulation.peak_bytes

    def is_leaner(self, other: AnnotatedProgram) -> bool:
        """About as fast, with much less memory."""
        mine, its = self.simulation, other.simulation
        return mine.step_seconds <= its.step_seconds * _LONGER and mine.peak_bytes * _LARGER <= its.peak_bytes


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """The search over the mesh of ``program``, some annotations of which are ``released``; within ``memory`` bytes per
    device. ``best`` is the cheapest choice for the ``question``, as models know it."""

    program: SourceProgram
    released: Released
    machine: str
    memory: float
    propagated: PropagatedProgram
    opened: OpenedProgram
    question: LayoutQuestion
    best: ChosenOptions

    @staticmethod
    def begin(program: SourceProgram, machine: str, memory: float, keep: Sequence[str] | None = None) -> PlanSearch:
        """Pose the question, and choose within the memory. Raises `UnsupportedError` for a partitioned program."""
        released = release(program, keep)
        propagated = released.program.propagate()
        outcome = propagated.outcome
        if outcome is None:
            fix = "give the program before partitioning"
            raise UnsupportedError("the program is already partitioned: there is nothing to choose", fix=fix)
        opened = open_program(propagated, outcome)
        module = released.program.module
        interface = find_free_interface(module, find_state(module))
        question = pose_question(opened.module, load_machine(machine), interface)
        best = question.solve(memory)
        return PlanSearch(program, released, machine, memory, propagated, opened, question, best)

    def found(self) -> AnnotatedProgram | None:
        """The program with the annotations of the best plan; None where no choice is allowed."""

        def ways(plan: CarriedPlan) -> Iterator[tuple[AnnotatedProgram, Judgement]]:
            made = replace(self.carry_out(plan.choice, plan.propagated), answer=plan.answer, limit=plan.limit)
            yield made, made.judged

        trials = PlanTrials(ways, self.memory, _ROUNDS)
        trials.run(self.question, self.best)
        if trials.last is not None:
            seeds = [find_seeds(self.question, self.memory, spread=spread) for spread in (False, True)]
            for found in (*seeds, find_state_seeds(self.question, self.memory)):
                trials.try_seeds(self.question, found, self.best, _SEEDS)
        return trials.best

    def carry_out(self, choice: Sequence[int], planned: Module | None = None) -> AnnotatedProgram:
        """The program with the annotations that lead to the layouts of ``choice``, or of the ``planned`` program."""
        wanted = self.opened.layouts(planned or self.question.answer(choice))
        return self.annotated(write_plan(self.propagated, wanted, self.released.names))

    def as_given(self) -> AnnotatedProgram:
        """The program with its own annotations only."""
        given = self.propagated if self.released.program is self.program else self.program.propagate()
        return self.annotated(own_plan(given))

    def annotated(self, written: WrittenPlan) -> AnnotatedProgram:
        """The program with ``written`` annotations, partitioned as these propagate, and simulated."""
        program = self.program.annotate(written.annotations()) if written.specs else self.program
        partitioned = program.partition(machine=self.machine, plan="propagated")
        simulation = simulate_partitioned(partitioned, self.machine, ignore_memory=True)
        detail("%d annotations: %s", len(written.specs), seconds_text(simulation.step_seconds))
        return AnnotatedProgram(program, partitioned, simulation, written)

    def as_users_have_it(self, made: AnnotatedProgram) -> AnnotatedProgram:
        """The same annotations with the plan that programs have by default, where it is within the memory."""
        judge = judge_of(self.machine, made.program.config)
        partitioned = made.program.partition(machine=self.machine, judge=judge)
        simulation = simulate_partitioned(partitioned, self.machine, ignore_memory=True)
        planned = replace(made, partitioned=partitioned, simulation=simulation)
        return planned if planned.fits(self.memory) or not made.fits(self.memory) else made

    def reasons(self, best: AnnotatedProgram, given: AnnotatedProgram) -> PlanReasons:
        """Why the plan of ``best`` is as it is, beside the program as it was given."""
        answer, why = best.answer, ""
        if answer is None:
            answer, why = self.best, "no annotations were found that shorten the step"
        return explain_plan(self.question, answer, best.limit, best.judged, given.judged, memory=self.memory, why=why)

    def shorten(self, best: AnnotatedProgram) -> AnnotatedProgram:
        """The program with as few of its annotations as a step hardly takes longer with, or is shorter with, and hardly
        more memory: those go first from which least follows, the lighter half and so on, then single ones."""
        most, tries = best.simulation.step_seconds * _LONGER, _SHORTER
        peak = best.simulation.peak_bytes
        room = min(max(self.memory, peak), peak * _LARGER)

        def attempt(specs: Sequence[PlanSpec]) -> bool:
            nonlocal best, tries, most
            tries -= 1
            made = self.annotated(replace(best.written, specs=tuple(specs)))
            made = replace(made, answer=best.answer, limit=best.limit)
            if made.simulation.step_seconds > most or made.simulation.peak_bytes > room:
                return False
            best, most = made, min(most, made.simulation.step_seconds * _LONGER)
            return True

        order = sorted((s for s in best.written.specs if not s.replaces), key=lambda s: s.follow_bytes)
        low, high = 0, len(order)
        while low < high and tries:
            middle = (low + high + 1) // 2
            if attempt(_without(best.written.specs, order[:middle])):
                low = middle
            else:
                high = middle - 1
        for spec in order[low + 1 :]:
            if tries:
                attempt(_without(best.written.specs, [spec]))
        return best


def _without(specs: Sequence[PlanSpec], left_out: Sequence[PlanSpec]) -> list[PlanSpec]:
    return [s for s in specs if all(s is not other for other in left_out)]
