"""How much work a plan may be: counted, not timed, so that equal programs have equal plans everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from shardc.hlo.errors import UnsupportedError
from shardc.partitioner.options import Plan
from shardc.partitioner.strategy.solve.solve import SolveLimits

__all__ = ["OverBudgetError", "PlanBudget", "budget_of"]


class OverBudgetError(UnsupportedError):
    """A plan would take more work than it may."""


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """``options`` of all decisions together, with ``options_each`` more per decision; ``rounds``: how many plans are
    carried out; ``limits`` of the solver; ``gain``: the least share of the cost that a plan must promise."""

    options: float = math.inf
    options_each: float = 0.0
    rounds: int = 3
    limits: SolveLimits = field(default_factory=SolveLimits)
    gain: float | None = None

    def check(self, decisions: int, options: int) -> None:
        """Raise `OverBudgetError` for ``decisions`` that have more ``options`` together."""
        most = self.options + self.options_each * decisions
        if options > most:
            raise OverBudgetError(
                f"a plan would choose among {options:,} layouts for {decisions:,} decisions, where {most:,.0f} may be",
                fix='ask for plan="global", which has no such limit',
            )

    def is_met(self, bound: float, cost: float) -> bool:
        """Does a program cost what no plan goes below? One that costs less than the ``bound`` has something that models
        of plans do not know, which says nothing."""
        return self.gain is not None and abs(cost - bound) <= self.gain * cost


#: Of a plan that nobody asked for: tables as small as those of two mesh axes, no integer programs.
_CAREFUL = PlanBudget(8_000, 48, 2, SolveLimits(columns=0, rounds=20), 1e-3)


def budget_of(plan: Plan) -> PlanBudget:
    """Of a ``global`` plan all that it takes; of an ``auto`` one what grows as the program does."""
    return PlanBudget() if plan == "global" else _CAREFUL
