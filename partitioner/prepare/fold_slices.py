"""A slice of a padded array is one pad, with negative edges: stencils then only fetch what crosses a shard's border.

``pad(u, 1)[2:]`` has the extent of ``u`` again; by way of the padded array, whose chunks are others, every element
would move to a neighbour and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import Sharding

__all__ = ["FoldSlices"]


@dataclass(frozen=True, slots=True)
class FoldSlices:
    """Slices with stride 1 of pads without interior, where they cut a dimension that is split; any dimension where
    layouts are ``free``, still to be chosen."""

    free: bool = False
    name: str = "fold-slices"
    why: str = "a padded array has other chunks than the array, and a slice of it often has the same"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, partial(_fold, free=self.free), {"slice"})


def _fold(old: Instruction, operands: tuple[Instruction, ...], *, free: bool) -> Instruction | None:
    if operands[0].opcode != "pad":
        return None
    pad = operands[0]
    edges: list[tuple[int, int, int]] = []
    split = False
    for d, (start, limit, stride) in enumerate(old.attrs["slice"]):
        low, high, interior = pad.attrs["padding"][d]
        cut = (start, limit, stride) != (0, pad.shape.dims[d], 1)
        if cut and (stride != 1 or interior):
            return None
        split = split or (cut and (free or _is_split(old, d) or _is_split(pad.operands[0], d)))
        edges.append((low - start, high - (pad.shape.dims[d] - limit), interior))
    if not split or not _leaves_something(pad, edges):
        return None
    return old.replace(opcode="pad", operands=pad.operands, attrs={"padding": tuple(edges)})


def _leaves_something(pad: Instruction, edges: list[tuple[int, int, int]]) -> bool:
    """Edges that cut may not cut beyond the array: the rest of the slice is all padding then."""
    sizes = pad.operands[0].shape.dims
    return all(n + min(low, 0) + min(high, 0) > 0 for n, (low, high, _) in zip(sizes, edges, strict=True))


def _is_split(x: Instruction, dim: int) -> bool:
    return isinstance(x.sharding, Sharding) and bool(x.sharding.dims[dim].axes)
