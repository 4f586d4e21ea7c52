"""Boxes: parts of arrays, as the interval of each dimension that they take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.hlo.ir.ir import Instruction

__all__ = ["Box", "cut_box", "hull", "is_slice", "join_boxes", "moved", "size_of", "whole"]

#: Per dimension the first element, and the one after the last.
Box = tuple[tuple[int, int], ...]


def whole(x: Instruction) -> Box:
    return tuple((0, n) for n in x.shape.dims)


def moved(box: Box, by: Sequence[int]) -> Box:
    return tuple((low + n, high + n) for (low, high), n in zip(box, by, strict=True))


def hull(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all."""
    return tuple((min(low for low, _ in b), max(high for _, high in b)) for b in zip(*boxes, strict=True))


def size_of(box: Box) -> int:
    return math.prod(high - low for low, high in box)


def join_boxes(boxes: Sequence[Box]) -> list[Box]:
    """Boxes are joined as long as what holds two is no larger than they are."""
    joined: list[Box] = []
    for box in boxes:
        n = 0
        while n < len(joined):
            both = hull([joined[n], box])
            if size_of(both) <= size_of(joined[n]) + size_of(box):
                box, n = both, 0
                joined = [b for b in joined if hull([both, b]) != both]
            else:
                n += 1
        joined.append(box)
    return joined


def is_slice(x: Instruction) -> bool:
    """One without steps."""
    return x.opcode == "slice" and all(stride == 1 for _, _, stride in x.attrs["slice"])


def cut_box(x: Instruction, box: Box, like: Instruction) -> Instruction:
    """``box`` of ``x``, for ``like``."""
    if box == whole(x):
        return x
    shape = x.shape.plain.with_dims(tuple(high - low for low, high in box))
    bounds = tuple((low, high, 1) for low, high in box)
    return Instruction("slice", shape, (x,), {"slice": bounds}, metadata=like.metadata)
