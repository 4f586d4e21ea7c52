"""How much work a plan may be: counted, not timed, so that equal programs have equal plans everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shardc.hlo.errors import UnsupportedError
from shardc.partitioner.options import Plan
from shardc.partitioner.strategy.solve.solve import SolveLimits

__all__ = ["OverBudgetError", "PlanBudget", "budget_of"]

#: Of a plan that somebody asked for: models are no truer than its gap; a few solutions take a minute or two.
_THOROUGH = SolveLimits(parts=2, enough=5e-3)


class OverBudgetError(UnsupportedError):
    """A plan would take more work than it may."""


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """``options`` of all decisions together, with ``options_each`` more per decision, ``most`` at most; ``rounds``: how
    many plans are carried out, ``seeds``: how many that follow patterns besides; ``limits`` of the solver; ``gain``:
    the least share of the cost that a plan must promise; ``doubt``: by how much models may be off; ``repairs``:
    rounds of the solver within memory; ``slack``: by how much a plan within memory may cost more than the program
    without one, as models know it."""

    options: float = math.inf
    options_each: float = 0.0
    most: float = math.inf
    rounds: int = 3
    seeds: int = 6
    limits: SolveLimits = _THOROUGH
    gain: float = 0.0
    doubt: float = math.inf
    repairs: int = 1 << 30
    slack: float = math.inf

    def check(self, decisions: int, options: int) -> None:
        """Raise `OverBudgetError` for ``decisions`` that have more ``options`` together."""
        most = min(self.options + self.options_each * decisions, self.most)
        if options > most:
            raise OverBudgetError(
                f"a plan would choose among {options:,} layouts for {decisions:,} decisions,"
                f" and its limit is {most:,.0f}",
                fix='ask for plan="global", which has no such limit',
            )

    @property
    def limits_within_memory(self) -> SolveLimits:
        """The solver's limits where memory is limited: each round then takes longer, as it searches for what fits."""
        return replace(self.limits, rounds=min(self.limits.rounds, self.repairs))

    def is_promising(self, bound: float, planned: float, present: float) -> bool:
        """Is a plan that costs ``planned`` worth being carried out, where no plan is below ``bound`` and the program
        costs ``present`` without one? A program below the bound has something that models do not know: far below it
        they say nothing."""
        if bound > present * (1 + self.gain):
            return bound <= present * (1 + self.doubt)
        return planned <= present * (1 - self.gain)

    def is_promising_within_memory(self, planned: float, present: float) -> bool:
        """Is one that was made to take less memory? It may seem to cost a little more than the present program: for
        such plans models are less true."""
        return planned <= present * (1 + self.slack)


#: Of a plan that nobody asked for: tables as small as those of two mesh axes, no integer programs.
_CAREFUL = PlanBudget(300, 48, 100_000, 2, 0, SolveLimits(columns=0, rounds=20, gap=1e-3), 0.02, 0.2, 8, 0.1)


def budget_of(plan: Plan) -> PlanBudget:
    """Of a ``global`` plan all that it takes; of an ``auto`` one what grows as the program does."""
    return PlanBudget() if plan == "global" else _CAREFUL
