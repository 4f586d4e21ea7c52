"""The inside of a map: where no element is chosen by its position, so that code for it has no masks and no selections.

Shifts, pads and halos are choices by position, whose conditions hold, or fail, for all elements but those at the
borders. A loop variable that counts the inside alone has a range that decides them while code is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardc.compiler.elements.affine import Expr, InRange
from shardc.compiler.elements.elements import Element, Elements, Recorder
from shardc.compiler.elements.loop_space import Space

__all__ = ["Box", "find_inside", "slabs"]

#: Maps of fewer elements, or of more arithmetic, have one code for all elements: it is compiled faster.
_LEAST, _MOST_OPERATIONS = 1 << 14, 256
#: The inside is at least so much of a dimension.
_SHARE = 0.75


@dataclass(frozen=True)
class Box:
    """A part of an iteration space: where it begins, and its sizes."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]


def find_inside(e: Elements, dims: Sequence[int], elements: Sequence[Element], unit: int) -> list[tuple[int, int]]:
    """Per dimension, where its inside begins and ends; in the last one at multiples of ``unit`` elements.

    A dimension is all inside where nothing is chosen by its index, and where no part is most of it.
    """
    whole = [(0, n) for n in dims]
    if math.prod(dims) < _LEAST:
        return whole
    space = Space(e.source, dims)
    recorder = Recorder(e.source, e.leaves, e.rules)
    for element in elements:
        element(recorder, space.index, ())
    if recorder.folds or recorder.one_by_one or recorder.operations > _MOST_OPERATIONS:
        return whole
    conditions = dict.fromkeys([*recorder.conditions, *(c for a in recorder.accesses for c in a.mask)])
    found: list[tuple[int, int]] = []
    for d, n in enumerate(dims):
        begin, end = _longest(n, _borders(conditions, space.index[d], n))
        if d == len(dims) - 1:
            begin, end = min(-(-begin // unit) * unit, n), end if end == n else end // unit * unit
        found.append((begin, end) if end - begin >= _SHARE * n else (0, n))
    return found


def _borders(conditions: Iterable[InRange], index: Expr, n: int) -> Iterator[int]:
    """Values of an index below ``n`` at which one of the conditions changes."""
    for c in conditions:
        if not index.terms or [v for v, _ in c.expr.terms] != [v for v, _ in index.terms]:
            continue
        ((_, k),) = c.expr.terms
        for bound in (c.low - c.expr.const, c.high - c.expr.const):
            border = -(-bound // k) if k > 0 else bound // k + 1
            if 0 < border < n:
                yield border


def _longest(n: int, borders: Iterable[int]) -> tuple[int, int]:
    """The longest run between borders."""
    places = sorted({0, n, *borders})
    return max(pairwise(places), key=lambda run: run[1] - run[0])


def slabs(dims: Sequence[int], inside: Sequence[tuple[int, int]]) -> Iterator[Box]:
    """Boxes that make up an iteration space: its inside, and per dimension what lies before and behind that."""
    starts, sizes = [0] * len(dims), list(dims)
    for d, (begin, end) in enumerate(inside):
        for first, past in ((0, begin), (end, dims[d])):
            if first < past:
                yield Box((*starts[:d], first, *starts[d + 1 :]), (*sizes[:d], past - first, *sizes[d + 1 :]))
        starts[d], sizes[d] = begin, end - begin
    yield Box(tuple(starts), tuple(sizes))
