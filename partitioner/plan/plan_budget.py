"""The limits of work for a plan. Work is counted, not timed, so that equal programs have equal plans everywhere."""

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
    """A plan would exceed its limit of work."""


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """``options`` is the limit for all decisions together, with ``options_each`` more per decision and at most
    ``most``. ``rounds``: the number of plans to carry out, ``seeds``: the number of additional plans that follow
    patterns. ``limits``: those of the solver. ``gain``: the least share of the cost that a plan must save. ``doubt``:
    the assumed error of the models. ``repairs``: rounds of the solver within memory. ``slack``: the extra modelled cost
    that a plan within memory may have over the program without a plan."""

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
        """Raise `OverBudgetError` if ``decisions`` have more ``options`` together than the limit."""
        most = min(self.options + self.options_each * decisions, self.most)
        if options > most:
            raise OverBudgetError(
                f"a plan would choose among {options:,} layouts for {decisions:,} decisions,"
                f" but its limit is {most:,.0f}",
                fix='use plan="global", which has no such limit',
            )

    @property
    def limits_within_memory(self) -> SolveLimits:
        """The solver's limits if memory is limited: each round then takes longer, since it searches for a choice that
        fits."""
        return replace(self.limits, rounds=min(self.limits.rounds, self.repairs))

    def is_promising(self, bound: float, planned: float, present: float) -> bool:
        """Whether a plan of cost ``planned`` is worth carrying out. No plan costs less than ``bound``, and the program
        without a plan costs ``present``. A program below the bound has a property that the models lack; far below it,
        they are not used."""
        if bound > present * (1 + self.gain):
            return bound <= present * (1 + self.doubt)
        return planned <= present * (1 - self.gain)

    def is_promising_within_memory(self, planned: float, present: float) -> bool:
        """The same for a plan that was made to use less memory. Its modelled cost may be slightly above that of the
        present program, since the models are less exact for such plans."""
        return planned <= present * (1 + self.slack)


#: Of a plan that nobody asked for: tables as small as those of two mesh axes, no integer programs.
_CAREFUL = PlanBudget(300, 48, 100_000, 2, 0, SolveLimits(columns=0, rounds=20, gap=1e-3), 0.02, 0.2, 8, 0.1)


def budget_of(plan: Plan) -> PlanBudget:
    """The budget of a plan: ``global`` gets the work that it needs, ``auto`` work that grows with the program."""
    return PlanBudget() if plan == "global" else _CAREFUL
