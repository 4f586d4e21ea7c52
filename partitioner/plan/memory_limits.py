"""Memory limits for plans, corrected by the memory that carried-out plans take."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["MemoryLimits", "room_of_plan"]

#: The part of a device's memory that a plan may fill on a machine; without one it may take as much as without a plan.
_SHARE = 0.8

#: Limits that are nearer to each other than this are the same.
_NARROW = 1.01


def room_of_plan(peak: float, device: float) -> float:
    """The bytes that a plan may fill where a program without one fills ``peak`` and a ``device`` has so many (0: no
    machine)."""
    return max(peak, _SHARE * device)


@dataclass(slots=True)
class MemoryLimits:
    """The modelled memory for which plans are made, so that their real memory just fits into ``room``. Each carried-out
    plan shows the error of the model. ``fits`` is the largest modelled memory that fitted, ``over`` the smallest that
    did not. ``next`` is the limit for the next plan: at first ``room``, unless it is given.
    """

    room: float
    next: float = 0.0
    fits: float = 0.0
    over: float = math.inf

    def __post_init__(self) -> None:
        self.next = self.next or self.room

    def learn(self, modelled: float, found: float) -> None:
        """Record that a plan of ``modelled`` bytes takes ``found`` bytes."""
        if found <= self.room:
            self.fits = max(self.fits, modelled)
        else:
            self.over = min(self.over, modelled)
        self.next = modelled * self.room / found
        if not self.fits < self.next < self.over:
            self.next = (self.fits + self.over) / 2 if self.over < math.inf else self.fits

    @property
    def narrow(self) -> bool:
        """Whether the limits that fit and those that do not are too close for another try."""
        return self.next <= self.fits * _NARROW or self.over <= self.fits * _NARROW
