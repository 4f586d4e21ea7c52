"""What a map fills: an array's memory, and its elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from llvmlite import ir

from shardc.compiler.cpu.loops.regions import Box
from shardc.compiler.elements.affine import Mask
from shardc.compiler.elements.elements import Element, Elements, Index
from shardc.compiler.tuning import DEFAULT
from shardc.hlo.ir.types import DType, Shape

__all__ = ["MapOutput", "moved_output"]


@dataclass(frozen=True)
class MapOutput:
    """An array to fill: where, its shape, and its elements.

    ``place`` says which index of the array an index of the iteration writes (default: the same), ``part`` how many
    there are in each dimension (default: all of the array). Arrays from ``streamed`` bytes on bypass the caches.
    """

    pointer: ir.Value
    shape: Shape
    element: Element
    place: Callable[[Elements, Index], Index] | None = None
    streamed: int = DEFAULT.streamed
    part: tuple[int, ...] | None = None

    @property
    def dtype(self) -> DType:
        return self.shape.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        """The iterations that fill it."""
        return self.shape.dims if self.part is None else self.part


def moved_output(o: MapOutput, box: Box) -> MapOutput:
    """The output as a map over a part of its indices."""
    if not any(box.starts):
        return o

    def here(index: Index) -> Index:
        return tuple(x + start for x, start in zip(index, box.starts, strict=True))

    def element(e: Elements, index: Index, mask: Mask) -> object:
        return o.element(e, here(index), mask)

    def place(e: Elements, index: Index) -> Index:
        return here(index) if o.place is None else o.place(e, here(index))

    return replace(o, element=element, place=place)
