"""Where a device's buffers lie on its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.collectives.call.call import BufferRef

__all__ = ["BufferPlaces"]


@dataclass(slots=True)
class BufferPlaces:
    """One device's memory: addresses of the arena and the constants, of its arguments and of its results.

    Example: ``places.address(BufferRef("argument", 2, 64, 16))``.
    """

    arena: int
    constants: int
    arguments: Sequence[int]
    results: Sequence[int]

    def address(self, ref: BufferRef) -> int:
        """Of the first byte of ``ref``."""
        match ref.space:
            case "arena":
                return self.arena + ref.offset
            case "argument":
                return int(self.arguments[ref.index]) + ref.offset
            case "result":
                return int(self.results[ref.index]) + ref.offset
            case _:
                return self.constants + ref.offset
