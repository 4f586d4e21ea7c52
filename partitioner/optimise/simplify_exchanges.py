"""Exchanges that undo, follow or repeat one another become one or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import AxisRef
from shardc.partitioner.optimise.keep_root import with_root_sharding

__all__ = ["SimplifyExchanges"]

_Rule = Callable[[Instruction], Instruction | None]


@dataclass(frozen=True, slots=True)
class SimplifyExchanges:
    """Chains of permutes, exchanges done twice, and collectives on what is the same everywhere."""

    name: str = "simplify-exchanges"
    why: str = "data that comes back need not be sent"

    def run(self, module: Module) -> Module:
        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            rule = _RULES.get(old.opcode)
            if rule is None or old.shape.is_tuple or len(operands) != 1:
                return None
            return rule(old if operands == old.operands else old.replace(operands=operands))

        return with_root_sharding(rebuild_module(module, change), module.entry.root.sharding)


def _permute(i: Instruction) -> Instruction | None:
    """A permute of a permute, over the same axes or over others, is one; one that moves nothing is none."""
    (x,) = i.operands
    pairs = i.attrs["source_target_pairs"]
    if not isinstance(pairs, AxisPairs):
        return None
    if _everywhere(x) and len(pairs.pairs) == pairs.group_size:
        return x
    if x.opcode == "collective-permute":
        first = x.attrs["source_target_pairs"]
        joined = _join(first, pairs) if isinstance(first, AxisPairs) else None
        if joined is not None:
            return _undo_moves(i.replace(operands=x.operands, attrs={**i.attrs, "source_target_pairs": joined}))
    return _undo_moves(i)


def _join(first: AxisPairs, then: AxisPairs) -> AxisPairs | None:
    """One permutation for two, one after the other; None for axes that overlap in part."""
    if first.mesh != then.mesh:
        return None
    if {a.name for a in first.axes}.isdisjoint(a.name for a in then.axes):
        axes = (*first.axes, *then.axes)
    else:
        axes = max(first.axes, then.axes, key=len)
    if not set(first.axes) | set(then.axes) <= set(axes):
        return None
    onward = dict(_pairs_over(then, axes))
    pairs = tuple((s, onward[t]) for s, t in _pairs_over(first, axes) if t in onward)
    return AxisPairs(then.mesh, axes, pairs)


def _pairs_over(pairs: AxisPairs, axes: tuple[AxisRef, ...]) -> tuple[tuple[int, int], ...]:
    """The same permutation over more axes."""
    if pairs.axes == axes:
        return pairs.pairs
    places = np.arange(math.prod(a.extent(pairs.mesh) for a in axes)).reshape([a.extent(pairs.mesh) for a in axes])
    order = [axes.index(a) for a in pairs.axes]
    rest = [d for d in range(len(axes)) if d not in order]
    grid = places.transpose(*order, *rest).reshape(pairs.group_size, -1)
    return tuple(sorted((int(u), int(v)) for s, t in pairs.pairs for u, v in zip(grid[s], grid[t], strict=True)))


def _undo_moves(i: Instruction) -> Instruction:
    pairs: AxisPairs = i.attrs["source_target_pairs"]
    still = len(pairs.pairs) == pairs.group_size and all(s == t for s, t in pairs.pairs)
    return i.operands[0] if still else i


def _all_to_all(i: Instruction) -> Instruction | None:
    """Two equal exchanges of whole parts undo each other."""
    (x,) = i.operands
    if _everywhere(x):
        return x
    if x.opcode != "all-to-all" or x.shape != i.shape or len(x.operands) != 1:
        return None
    same = all(x.attrs[k] == i.attrs[k] for k in ("replica_groups", "dimensions"))
    (dim,) = i.attrs["dimensions"]
    return x.operands[0] if same and i.shape.dims[dim] == i.attrs["replica_groups"].group_size else None


def _all_gather(i: Instruction) -> Instruction | None:
    """Everybody has the same one value: more of it."""
    (x,) = i.operands
    if not _everywhere(x):
        return None
    if x.opcode == "broadcast":
        return x.replace(shape=i.shape)
    literal = x.attrs["literal"]
    scalar = x.replace(
        shape=x.shape.with_dims(()), attrs={"literal": type(literal).full(x.shape.with_dims(()), literal.splat)}
    )
    return Instruction("broadcast", i.shape, (scalar,), {"dimensions": ()}, metadata=i.metadata)


def _everywhere(x: Instruction) -> bool:
    """One constant value in every element, on every device."""
    if x.opcode == "broadcast" and not x.operands[0].shape.dims:
        x = x.operands[0]
    return x.opcode == "constant" and x.attrs["literal"].splat is not None


_RULES: Mapping[str, _Rule] = {"collective-permute": _permute, "all-to-all": _all_to_all, "all-gather": _all_gather}
"""What each rule makes of a collective of one operand; None keeps it."""
