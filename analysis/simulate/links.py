"""Transfers on links that they share: each gets its fair part while others are under way.

A transfer alone takes its own time and uses a kind of links for a part of it. Beside others it is slowed until no links
are asked for more than they have: rates rise together, measured by what each transfer uses of the links that it needs
most (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), until it runs at full speed or one of its links is full.
With one kind of links that is max-min fair sharing of its bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["BusyLinks", "Flight", "fair_rates"]

#: Of a transfer's time, what counts as rounding.
_NOTHING = 1e-12


@dataclass(slots=True, eq=False)
class Flight:
    """A transfer under way: ``left`` seconds at full speed. ``uses`` are parts of each kind of links at full speed,
    ``loops`` the iterations in which it began."""

    work: int
    seconds: float
    begin: float
    uses: Mapping[str, float]
    left: float
    loops: tuple[tuple[str, int], ...] = ()
    rate: float = 1.0


@dataclass(slots=True)
class BusyLinks:
    """What is under way, in the order in which it began."""

    flying: list[Flight] = field(default_factory=list)

    def start(self, flight: Flight) -> None:
        self.flying.append(flight)
        self._divide()

    def next_landing(self) -> float:
        """Seconds until the first one lands, if nothing else begins; infinite when nothing is under way."""
        return max(0.0, min((f.left / f.rate for f in self.flying), default=math.inf))

    def fly(self, seconds: float) -> list[Flight]:
        """Let time pass, at most until `next_landing`; returns what has landed."""
        landed = []
        for f in self.flying:
            f.left -= f.rate * seconds
            if f.left <= _NOTHING * f.seconds:
                landed.append(f)
        if landed:
            self.flying = [f for f in self.flying if f not in landed]
            self._divide()
        return landed

    def saved(self) -> tuple[tuple[Flight, float, float], ...]:
        """For `restore`: transfers under way, what is left of each, and how fast it is."""
        return tuple((f, f.left, f.rate) for f in self.flying)

    def restore(self, saved: Iterable[tuple[Flight, float, float]]) -> None:
        self.flying = []
        for f, left, rate in saved:
            f.left, f.rate = left, rate
            self.flying.append(f)

    def _divide(self) -> None:
        for f, rate in zip(self.flying, fair_rates([f.uses for f in self.flying]), strict=True):
            f.rate = rate


def fair_rates(uses: Sequence[Mapping[str, float]]) -> list[float]:
    """The speed of each transfer, 1 being what it has alone; ``uses`` are positive and at most 1.

    Example: two that use all of one kind of links get a half each; beside one that uses a tenth, another gets 0.9.
    """
    most = [max(u.values(), default=0.0) for u in uses]
    rates = [1.0] * len(uses)
    free = dict.fromkeys((r for u in uses for r in u), 1.0)
    rising = [n for n, m in enumerate(most) if m > 0]
    share = 0.0  # what every rising transfer has of the links that it needs most
    while rising:
        asked: dict[str, float] = {}
        for n in rising:
            for r, use in uses[n].items():
                asked[r] = asked.get(r, 0.0) + use / most[n]
        full = {r: share + free[r] / a for r, a in asked.items()}
        stop = min(*full.values(), *(most[n] for n in rising))
        for r, a in asked.items():
            free[r] = max(0.0, free[r] - a * (stop - share))
        share = stop
        reached = stop * (1 + _NOTHING)
        stopped = {n for n in rising if most[n] <= reached or any(full[r] <= reached for r in uses[n])}
        for n in stopped:
            rates[n] = min(1.0, share / most[n])
        rising = [n for n in rising if n not in stopped]
    return rates
