"""Limits of memory for plans, corrected by what plans come to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["MemoryLimits"]

#: Limits that are nearer to each other than this are the same.
_NARROW = 1.01


@dataclass(slots=True)
class MemoryLimits:
    """How much memory plans are made for, such that what they come to just fits into ``room``.

    Plans know memory by models: what one comes to tells what the models are off by. ``fits`` is the most modelled
    memory that was found to fit, ``over`` the least that was not.
    """

    room: float
    next: float = field(init=False)
    fits: float = 0.0
    over: float = math.inf

    def __post_init__(self) -> None:
        self.next = self.room

    def learn(self, modelled: float, found: float) -> None:
        """A plan of ``modelled`` bytes came to ``found`` bytes."""
        if found <= self.room:
            self.fits = max(self.fits, modelled)
        else:
            self.over = min(self.over, modelled)
        self.next = modelled * self.room / found
        if not self.fits < self.next < self.over:
            self.next = (self.fits + self.over) / 2 if self.over < math.inf else self.fits

    @property
    def narrow(self) -> bool:
        """Is there nothing between what fits and what does not?"""
        return self.next <= self.fits * _NARROW or self.over <= self.fits * _NARROW
