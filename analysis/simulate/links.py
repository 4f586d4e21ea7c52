"""Transfers on links that they share: so many at a time, each with its fair part, and the others wait in a queue.

A kind of links carries a limited number of transfers at a time. Those beyond it wait, first in, first out: a transfer
flies once fewer than that many unfinished ones began before it on each kind of links that it uses. Devices of a program
begin transfers in one order, so whatever began first can always fly, and no two wait for each other.

A transfer alone takes its own time and uses a kind of links for a part of it. Beside others it is slowed until no links
are asked for more than they have: rates rise together, measured by what each transfer uses of the links that it needs
most (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), until it runs at full speed or one of its links is full.
With one kind of links that is max-min fair sharing of its bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["BusyLinks", "Flight", "SavedFlight", "fair_rates"]

#: Of a transfer's time, what counts as rounding.
_NOTHING = 1e-12


@dataclass(slots=True, eq=False)
class Flight:
    """A transfer under way: ``left`` seconds at full speed. ``uses`` are parts of each kind of links at full speed,
    ``loops`` the iterations in which it began. It was ``queued`` so many seconds until ``behind`` landed; ``rate`` is 0
    while it is."""

    work: int
    seconds: float
    begin: float
    uses: Mapping[str, float]
    left: float
    loops: tuple[tuple[str, int], ...] = ()
    rate: float = 1.0
    queued: float = 0.0
    behind: Flight | None = None


#: What `BusyLinks.restore` needs of a transfer: what is left, its rate, how long it was queued and behind what.
SavedFlight = tuple[Flight, float, float, float, Flight | None]


@dataclass(slots=True)
class BusyLinks:
    """What is under way, in the order in which it began; ``limit`` transfers at a time on each kind of links (0: any
    number)."""

    limit: int = 0
    flying: list[Flight] = field(default_factory=list)

    def start(self, flight: Flight) -> None:
        self.flying.append(flight)
        self._divide()

    def next_landing(self) -> float:
        """Seconds until the first one lands, if nothing else begins; infinite when nothing is under way."""
        return max(0.0, min((f.left / f.rate for f in self.flying if f.rate), default=math.inf))

    def fly(self, seconds: float) -> list[Flight]:
        """Let time pass, at most until `next_landing`; returns what has landed."""
        landed = []
        for f in self.flying:
            if not f.rate:
                f.queued += seconds
                continue
            f.left -= f.rate * seconds
            if f.left <= _NOTHING * f.seconds:
                landed.append(f)
        if landed:
            self.flying = [f for f in self.flying if f not in landed]
            waiting = [f for f in self.flying if not f.rate]
            self._divide()
            for f in waiting:
                if f.rate:
                    f.behind = next(x for x in landed if x.uses.keys() & f.uses.keys())
        return landed

    def holds_up(self, flight: Flight, other: Flight) -> bool:
        """Whether ``other`` waits until ``flight`` has landed."""
        return not other.rate and bool(flight.rate) and bool(flight.uses.keys() & other.uses.keys())

    def saved(self) -> tuple[SavedFlight, ...]:
        """For `restore`: transfers under way, and all of each that changes."""
        return tuple((f, f.left, f.rate, f.queued, f.behind) for f in self.flying)

    def restore(self, saved: Iterable[SavedFlight]) -> None:
        self.flying = []
        for f, left, rate, queued, behind in saved:
            f.left, f.rate, f.queued, f.behind = left, rate, queued, behind
            self.flying.append(f)

    def _divide(self) -> None:
        ahead: dict[str, int] = {}
        fly: list[Flight] = []
        for f in self.flying:
            f.rate = 0.0
            if not self.limit or all(ahead.get(r, 0) < self.limit for r in f.uses):
                fly.append(f)
            for r in f.uses:
                ahead[r] = ahead.get(r, 0) + 1
        for f, rate in zip(fly, fair_rates([f.uses for f in fly]), strict=True):
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
