"""A time axis that folds skipped iterations: what is listed gets the room, what was not a block of fixed width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shardc.analysis.simulate.simulated_step import SimulatedStep, Skipped

__all__ = ["FoldedTime", "fold_time"]

#: Share of the axis that a block of skipped iterations gets at most, and all of them together; and the share of the
#: time from which on a block is folded at all.
_BLOCK, _BLOCKS, _LONG = 0.1, 0.4, 0.02


@dataclass(frozen=True)
class FoldedTime:
    """Piecewise linear from ``seconds`` (ascending) to ``places`` between 0 and 1; ``skipped`` are all blocks of
    skipped iterations, ``folded`` those that the axis cuts short."""

    seconds: tuple[float, ...]
    places: tuple[float, ...]
    skipped: tuple[Skipped, ...]
    folded: tuple[Skipped, ...]

    def place(self, seconds: ArrayLike) -> NDArray[np.float64]:
        """Places on the axis of points in time, of the same shape."""
        return np.asarray(np.interp(np.asarray(seconds, np.float64), self.seconds, self.places), np.float64)

    def time(self, place: ArrayLike) -> NDArray[np.float64]:
        """The inverse of `place`."""
        return np.asarray(np.interp(np.asarray(place, np.float64), self.places, self.seconds), np.float64)


def fold_time(simulation: SimulatedStep) -> FoldedTime:
    """The axis of a simulated step; skips within a skip count as one block."""
    end = max(simulation.step_seconds, *(e.begin + e.seconds for e in simulation.events), 0.0) or 1.0
    skipped = _outermost(simulation.skipped)
    blocks = [s for s in skipped if s.seconds > _LONG * end]
    hidden = sum(s.seconds for s in blocks)
    each = min(_BLOCK, _BLOCKS / max(len(blocks), 1))
    wide = [min(each, s.seconds / end) for s in blocks]
    scale = (1 - sum(wide)) / (end - hidden) if end > hidden else 0.0
    seconds, places = [0.0], [0.0]

    def add(at: float, place: float) -> None:
        if at > seconds[-1]:
            seconds.append(at)
            places.append(place)

    for block, width in zip(blocks, wide, strict=True):
        add(block.begin, places[-1] + (block.begin - seconds[-1]) * scale)
        add(block.begin + block.seconds, places[-1] + width)
    add(end, 1.0)
    return FoldedTime(tuple(seconds), tuple(places), tuple(skipped), tuple(blocks))


def _outermost(skipped: Sequence[Skipped]) -> list[Skipped]:
    """Those that do not lie in the time of another, in order of time."""
    out: list[Skipped] = []
    for skip in sorted(skipped, key=lambda s: (s.begin, -s.seconds)):
        if skip.seconds > 0 and (not out or skip.begin >= out[-1].begin + out[-1].seconds * (1 - 1e-9)):
            out.append(skip)
    return out
