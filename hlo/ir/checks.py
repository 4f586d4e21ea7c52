"""The ``check.*`` custom calls of programs that check themselves: how near is near enough."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.lapack import attributes_of

__all__ = ["Tolerance", "limits_of"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a check allows: an absolute distance, or a number of values of the type in between."""

    tolerance: float = 1e-3
    max_ulps: int = 3
    min_ulps: int = 0


def limits_of(check: Instruction) -> Tolerance:
    """The limits that a check's ``backend_config`` names, else those of StableHLO's own test programs.

    Example: ``{tolerance = 1.000000e-04 : f64}``, ``{max_ulp_difference = 1 : i64, min_ulp_difference = 0 : i64}``.
    """
    given, usual = attributes_of(check), Tolerance()
    return Tolerance(
        float(given.get("tolerance", usual.tolerance)),
        int(given.get("max_ulp_difference", usual.max_ulps)),
        int(given.get("min_ulp_difference", usual.min_ulps)),
    )
