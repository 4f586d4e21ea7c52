"""How many bytes intervals cover together, while they come and go."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Covered"]


class Covered:
    """The bytes under a changing set of intervals: a tree over all the ``ends`` that intervals may have.

    A node knows how many intervals cover all of it and do not cover all of its parent, and the bytes that those and the
    ones below cover (Bentley, "Solutions to Klee's rectangle problems", 1977), so a change costs the logarithm of the
    number of ends.

    Example: ``c = Covered((0, 4, 8)); c.change(0, 8, 1); c.change(4, 8, 1); c.nbytes`` is 8.
    """

    def __init__(self, ends: Iterable[int]) -> None:
        self._ends = sorted(set(ends))
        self._number = {end: n for n, end in enumerate(self._ends)}
        size = 1
        while size < len(self._ends):
            size *= 2
        self._size = size
        self._count = [0] * (2 * size)
        self._bytes = [0] * (2 * size)

    @property
    def nbytes(self) -> int:
        return self._bytes[1]

    def change(self, low: int, high: int, by: int) -> None:
        """One interval from ``low`` to ``high`` more, or one less."""
        if low < high:
            self._change(1, 0, self._size, self._number[low], self._number[high], by)

    def _change(self, node: int, begin: int, end: int, low: int, high: int, by: int) -> None:
        """``node`` is about the gaps ``begin`` to ``end`` between neighbouring places."""
        if low <= begin and end <= high:
            self._count[node] += by
        else:
            middle = (begin + end) // 2
            if low < middle:
                self._change(2 * node, begin, middle, low, high, by)
            if high > middle:
                self._change(2 * node + 1, middle, end, low, high, by)
        if self._count[node]:
            self._bytes[node] = self._ends[min(end, len(self._ends) - 1)] - self._ends[begin]
        else:
            self._bytes[node] = 0 if end - begin == 1 else self._bytes[2 * node] + self._bytes[2 * node + 1]
