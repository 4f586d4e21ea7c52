"""`Moved`: the last assignment of one part of an array to another, by which the second half of a swap is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardc.hlo.errors import InputError

__all__ = ["Moved"]


@dataclass(frozen=True)
class Moved:
    """The part ``source`` was assigned to the part ``target`` of the same array, which got this ``version`` by it."""

    version: int
    target: Any
    source: Any

    def check(self, version: int, source: Any, read_at: int, target: Any, where: str | None) -> None:
        """Raise `InputError` where assigning ``source``, a view last read at version ``read_at``, ends a swap.

        ``x[i], x[j] = x[j], x[i]`` takes two views, and the first assignment changes what the second is to read: a row
        is lost, in NumPy as here. NumPy's ``shuffle`` copies rows of its own arrays, and swaps those of others so.
        """
        if version == self.version > read_at and (self.target, self.source) == (source, target):
            raise InputError(
                "x[i], x[j] = x[j], x[i] makes both parts equal: x[i] is a view, which the first assignment changes "
                "(in NumPy, too); np.random's shuffle swaps rows this way",
                where=where,
                fix="x[[i, j]] = x[[j, i]]; instead of shuffle, x = x[rng.permutation(len(x))]",
            )
