"""Arrays in memory by strides: what slices, transpositions and their like read, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StridedView", "dense_strides"]


class StridedView(NamedTuple):
    """Elements of ``element`` bytes: ``offset`` and ``strides`` in bytes, in memory ``number`` of a ``space``."""

    space: str
    number: int
    offset: int
    element: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    def permute(self, order: Sequence[int]) -> StridedView:
        """Dimension ``k`` is ``order[k]`` of this one."""
        return self._with(0, [self.dims[d] for d in order], [self.strides[d] for d in order])

    def slice(self, ranges: Sequence[tuple[int, int, int]]) -> StridedView:
        """From a start up to a limit, by dimension, with a positive step."""
        skipped = sum(first * stride for (first, _, _), stride in zip(ranges, self.strides, strict=True))
        dims = [max(0, -(-(past - first) // step)) for first, past, step in ranges]
        return self._with(skipped, dims, [s * step for s, (_, _, step) in zip(self.strides, ranges, strict=True)])

    def reverse(self, dimensions: Sequence[int]) -> StridedView:
        """Some dimensions the other way round."""
        skipped = sum((self.dims[d] - 1) * self.strides[d] for d in dimensions)
        return self._with(skipped, self.dims, [-s if d in dimensions else s for d, s in enumerate(self.strides)])

    def broadcast(self, dims: Sequence[int], places: Sequence[int]) -> StridedView:
        """Dimension ``k`` becomes ``places[k]`` of ``dims``; all along the others it is the same."""
        where = {d: s for d, n, s in zip(places, self.dims, self.strides, strict=True) if n == dims[d]}
        return self._with(0, dims, [where.get(d, 0) for d in range(len(dims))])

    def rearrange(self, dims: Sequence[int], strides: Sequence[int], skipped: int = 0) -> StridedView:
        """Any dimensions, with strides, from ``skipped`` bytes on."""
        return self._with(skipped, dims, strides)

    def _with(self, skipped: int, dims: Sequence[int], strides: Sequence[int]) -> StridedView:
        return StridedView(self.space, self.number, self.offset + skipped, self.element, tuple(dims), tuple(strides))


def dense_strides(dims: Sequence[int], element: int) -> tuple[int, ...]:
    """Of an array that lies row by row."""
    found, stride = [], element
    for n in reversed(dims):
        found.append(stride)
        stride *= n
    return tuple(reversed(found))
