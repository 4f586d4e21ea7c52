"""Where the elements of a view lie in its base's memory, as numbers: NumPy's rules for views need no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["Strides"]


@dataclass(frozen=True, slots=True)
class Strides:
    """Sizes, and per dimension the step (in elements, relative to the other steps) from one element to the next."""

    dims: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def dense(cls, dims: Sequence[int]) -> Strides:
        """Row-major."""
        steps, step = [], 1
        for n in reversed(dims):
            steps.append(step)
            step *= max(n, 1)
        return cls(tuple(dims), tuple(reversed(steps)))

    @property
    def is_dense(self) -> bool:
        """Whether the elements follow one another in memory in row-major order."""
        pairs = zip(self.dims, self.steps, Strides.dense(self.dims).steps, strict=True)
        return 0 in self.dims or all(n == 1 or have == wanted for n, have, wanted in pairs)

    def spread(self, factor: int) -> Strides:
        """With other elements between these."""
        return Strides(self.dims, tuple(factor * s for s in self.steps))

    def transpose(self, order: Sequence[int]) -> Strides:
        return Strides(tuple(self.dims[d] for d in order), tuple(self.steps[d] for d in order))

    def broadcast(self, dims: Sequence[int]) -> Strides:
        """Dimensions that are added or spread repeat the same memory."""
        lead = len(dims) - len(self.dims)
        kept = [d >= lead and self.dims[d - lead] == n for d, n in enumerate(dims)]
        return Strides(tuple(dims), tuple(self.steps[d - lead] if k else 0 for d, k in enumerate(kept)))

    def index(self, items: Sequence[Any]) -> Strides:
        """By slices, integers (dropped) and None (a new dimension), one item per dimension."""
        made: list[tuple[int, int]] = []
        d = 0
        for item in items:
            if item is None:
                made.append((1, 0))
                continue
            if isinstance(item, slice):
                chosen = range(*item.indices(self.dims[d]))
                made.append((len(chosen), self.steps[d] * chosen.step))
            d += 1
        return Strides(tuple(n for n, _ in made), tuple(s for _, s in made))

    def reshape(self, dims: Sequence[int]) -> Strides | None:
        """As many elements in other ``dims``, in row-major order; None where that takes a copy.

        Both shapes are cut into the shortest groups of dimensions of equal size; old dimensions of one group have to
        follow one another in memory.
        """
        if 0 in self.dims:
            return Strides.dense(dims)
        old = [(n, s) for n, s in zip(self.dims, self.steps, strict=True) if n != 1]
        new: list[int] = []
        rest = list(dims)
        while old:
            group = [old.pop(0)]
            have, wanted = group[0][0], [rest.pop(0)]
            size = wanted[0]
            while have != size:
                if size < have:
                    wanted.append(rest.pop(0))
                    size *= wanted[-1]
                else:
                    group.append(old.pop(0))
                    have *= group[-1][0]
            if any(s != after * t for (_, s), (after, t) in pairwise(group)):
                return None
            steps = [group[-1][1]]
            for n in reversed(wanted[1:]):
                steps.append(steps[-1] * n)
            new += reversed(steps)
        return Strides(tuple(dims), (*new, *[0] * len(rest)))
