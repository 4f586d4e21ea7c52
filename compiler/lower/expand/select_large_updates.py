"""An update of most of an array at a known place becomes a selection by position, which kernels around it compute.

As an update, the array is copied first, and what is put into it is made before, since it mostly reads the array:
``u[1:-1] += f(u)`` goes through memory three times. A selection goes through it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, scalar_value
from shardc.hlo.ir.types import array_shape

__all__ = ["SelectLargeUpdates"]


@dataclass(frozen=True, slots=True)
class SelectLargeUpdates:
    """Where the part that is written is at least ``share`` of the array."""

    name: str = "select-large-updates"
    why: str = "saves a copy of the array, and a second array for the update"
    share: float = 0.5
    looks_at: ClassVar[frozenset[str]] = frozenset({"dynamic-update-slice"})

    def run(self, module: Module) -> Module:
        return rebuild_module(module, self._selected, self.looks_at)

    def _selected(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        x, window, *starts = operands
        known = [scalar_value(s) for s in starts]
        if len(known) != old.shape.rank or any(v is None for v in known):
            return None
        if not 0 < window.shape.size < old.shape.size or window.shape.size < self.share * old.shape.size:
            return None
        lows = [min(max(int(v), 0), n - m) for v, n, m in zip(known, old.shape.dims, window.shape.dims, strict=True)]
        sizes = zip(lows, window.shape.dims, old.shape.dims, strict=True)
        edges = tuple((low, n - low - m, 0) for low, m, n in sizes)
        zero = constant(Literal(np.zeros((), old.shape.dtype.numpy)), old)
        spread = make("pad", old.shape, (window, zero), old, padding=edges)
        mask: Instruction | None = None
        for limit in _limits(old, edges):
            mask = limit if mask is None else make("and", mask.shape, (mask, limit), old)
        return make("select", old.shape, (mask, spread, x), old) if mask is not None else None


def _limits(old: Instruction, edges: tuple[tuple[int, int, int], ...]) -> Iterator[Instruction]:
    """Per edge that is kept, which elements are on the window's side of it."""
    for d, (n, (low, high, _)) in enumerate(zip(old.shape.dims, edges, strict=True)):
        place = make("iota", array_shape("s32", n), (), old, iota_dimension=0)
        for width, bound, direction in ((low, low, "GE"), (high, n - high, "LT")):
            if width:
                wide = broadcast_scalar(constant(Literal(np.int32(bound)), old), (n,), old)
                made = make("compare", array_shape("pred", n), (place, wide), old, direction=direction)
                yield make("broadcast", array_shape("pred", *old.shape.dims), (made,), old, dimensions=(d,))
