"""`find_repeats`: stretches of a sequence that go through the same codes again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Repeat", "find_repeats"]

#: How many equal codes ahead a period is looked for; and how many periods are tried, most frequent distances first.
_AHEAD, _PERIODS = 8, 256


@dataclass(frozen=True, slots=True)
class Repeat:
    """From ``start`` on to ``stop``, every code equals the one ``period`` places before it."""

    start: int
    stop: int
    period: int


def find_repeats(codes: NDArray[np.int64], least_times: int, least_length: int) -> Iterator[Repeat]:
    """Stretches of at least ``least_times`` periods and ``least_length`` codes, shortest periods first."""
    for period in _periods(codes, least_times):
        equal = np.concatenate(([False], codes[:-period] == codes[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if end - start + period >= max(least_times * period, least_length):
                yield Repeat(start, end + period, period)


def _periods(codes: NDArray[np.int64], least_times: int) -> list[int]:
    """Distances at which equal codes follow each other often, shortest first."""
    order = np.argsort(codes, kind="stable")
    by_code = codes[order]
    gaps = [
        (order[ahead:] - order[:-ahead])[by_code[ahead:] == by_code[:-ahead]]
        for ahead in range(1, min(_AHEAD, len(codes) - 1) + 1)
    ]
    found, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *gaps]), return_counts=True)
    usual = np.flatnonzero((counts >= least_times - 1) & (found * least_times <= len(codes)))
    usual = usual[np.argsort(-counts[usual], kind="stable")][:_PERIODS]
    return sorted(found[usual].tolist())
