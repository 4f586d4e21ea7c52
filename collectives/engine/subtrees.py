"""Parts of the fixed reduction tree that one owner computes alone, and how their results are combined.

The tree over g positions halves the next power of two (`shardc.collectives.call.reduction`). A *subtree* is an aligned
block of ``width`` positions, a power of two, cut off at g. Whoever owns all members of a block may reduce them by
themselves: it is what the whole tree does there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Subtree", "combine", "subtrees"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subtree:
    """The positions ``lo`` up to ``lo + width`` (or the end of the group), all of one ``owner``."""

    lo: int
    width: int
    owner: int


def subtrees(owners: Sequence[int], *, partial: bool = True) -> list[Subtree]:
    """The largest subtrees with one owner each, in order of position; single positions unless ``partial``.

    Example: ``subtrees([0, 0, 0, 1, 1, 1])`` has blocks of width 2, 1, 1 and 2 at 0, 2, 3 and 4.
    """
    if not partial:
        return [Subtree(p, 1, owner) for p, owner in enumerate(owners)]
    width = 1
    while width < len(owners):
        width *= 2

    def cut(lo: int, width: int) -> list[Subtree]:
        block = set(owners[lo : lo + width])
        if len(block) <= 1:
            return [Subtree(lo, width, owners[lo])] if block else []
        return cut(lo, width // 2) + cut(lo + width // 2, width // 2)

    return cut(0, width)


def combine(parts: Sequence[tuple[Subtree, T]], reduce: Callable[[Sequence[T]], T]) -> Sequence[T]:
    """Values of subtrees put together until one tree over equal blocks is left: its members, in order.

    ``reduce`` makes the value of a pair of neighbours. Reducing what is returned gives the whole tree's value.
    """
    blocks = [(s.lo, s.width, value) for s, value in parts]
    while True:
        least = min(width for _, width, _ in blocks)
        if all(width == least for _, width, _ in blocks):
            return [value for _, _, value in blocks]
        blocks = _double(blocks, least, reduce)


def _double(
    blocks: list[tuple[int, int, T]], width: int, reduce: Callable[[Sequence[T]], T]
) -> list[tuple[int, int, T]]:
    """The blocks of ``width`` become blocks of twice that; one without a neighbour moves up unchanged."""
    out: list[tuple[int, int, T]] = []
    for lo, wide, value in blocks:
        if wide > width:
            out.append((lo, wide, value))
        elif lo % (2 * width):
            first = out.pop()
            out.append((first[0], 2 * width, reduce([first[2], value])))
        else:
            out.append((lo, 2 * width, value))
    return out
