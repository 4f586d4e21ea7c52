"""The mesh axes that an operation's dimensions may be split over: whole blocks of axes, assigned jointly.

A *block* is a run of atoms that no sharding of the program separates: an axis of the mesh, or a part of an axis that
some sharding divides. An *assignment* gives each block to one of several places (factors), or to none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from shardc.partitioner.emit.layout import Atoms, AxisLayout, AxisTable

__all__ = ["assignments", "axis_blocks"]

#: So many assignments of one operation are enumerated at most; those that leave fewer blocks aside come first.
_MOST = 4096


def axis_blocks(table: AxisTable, cuts: Sequence[AxisLayout]) -> tuple[Atoms, ...]:
    """The blocks of a mesh, major to minor, where the layouts ``cuts`` are those of the program."""
    borders = {0, table.count}
    borders.update(a for a in range(1, table.count) if table.names[a] != table.names[a - 1])
    for layout in cuts:
        for dim in (*layout.dims, layout.unreduced):
            for k, a in enumerate(dim):
                if k == 0 or dim[k - 1] != a - 1:
                    borders.add(a)
                if k == len(dim) - 1 or dim[k + 1] != a + 1:
                    borders.add(a + 1)
    marks = sorted(borders)
    return tuple(tuple(range(a, b)) for a, b in itertools.pairwise(marks))


def assignments(
    blocks: Sequence[Atoms], places: int, fits: Callable[[int, Atoms], bool]
) -> Iterator[tuple[Atoms, ...]]:
    """Atoms per place, for every way to give each block to one of ``places`` places or to none, in every order.

    ``fits(place, atoms)`` tells whether a place can have these atoms. Ways that use more blocks come first.
    """
    count = 0
    choices = sorted(
        itertools.product(range(places + 1), repeat=len(blocks)), key=lambda c: (sum(p == places for p in c), c)
    )
    for chosen in choices:
        groups = [[b for b, p in zip(blocks, chosen, strict=True) if p == place] for place in range(places)]
        orders = [_orders(g) for g in groups]
        for ordered in itertools.product(*orders):
            out = tuple(tuple(itertools.chain.from_iterable(g)) for g in ordered)
            if all(not atoms or fits(place, atoms) for place, atoms in enumerate(out)):
                yield out
                count += 1
                if count == _MOST:
                    return


def _orders(group: Sequence[Atoms]) -> list[tuple[Atoms, ...]]:
    """Both orders of two blocks; for more blocks, the order of the mesh and its reverse."""
    if len(group) < 2:
        return [tuple(group)]
    return [tuple(group), tuple(reversed(group))]
