"""Ops that stand for short programs are written out where the programs partition better than the ops.

``rng`` always: what it draws is by counter, so that devices agree about numbers that HLO leaves open. Batch
normalisation where more than its features are split: means and variances are then sums of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.make import keep_reachable
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.transforms.expand_batch_norm import expand_batch_norm
from shardc.hlo.transforms.expand_random import expand_rng

__all__ = ["ExpandSplit"]


@dataclass(frozen=True, slots=True)
class ExpandSplit:
    """See the module docstring."""

    name: str = "expand-split"
    why: str = "some ops need whole dimensions where their parts need only sums or a counter"

    def run(self, module: Module) -> Module:
        after = rebuild_module(module, _expand, _PROGRAMS.keys())
        return after if after is module else keep_reachable(after, after.entry)


def _draws(op: Instruction) -> Sharding | None:
    return op.sharding if isinstance(op.sharding, Sharding) else None


def _normalises(op: Instruction) -> Sharding | None:
    """How the normalised array lies, if it is split along more than its features."""
    x, feature = op.operands[0].sharding, op.attrs["feature_index"]
    if not isinstance(x, Sharding) or not any(s.axes for d, s in enumerate(x.dims) if d != feature):
        return None
    return replace(x, unreduced=())


_PROGRAMS: Mapping[str, tuple[Callable[[Instruction], Sharding | None], Callable[[Instruction], Computation]]] = (
    MappingProxyType(
        {
            "rng": (_draws, expand_rng),
            "batch-norm-training": (_normalises, expand_batch_norm),
            "batch-norm-grad": (_normalises, expand_batch_norm),
        }
    )
)


def _expand(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    place, program = _PROGRAMS[old.opcode]
    sharding = place(old)
    if sharding is None:
        return None
    body = program(old)
    main = next(old.shape.leaves())
    new = dict(zip(body.parameters, operands, strict=True))
    for i in body:
        if i.opcode != "parameter":
            shardings = tuple(_like(old, sharding, leaf, main) for leaf in i.shape.leaves())
            own = shardings if i.shape.is_tuple else shardings[0]
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands), sharding=own, metadata=old.metadata)
    return new[body.root]


def _like(old: Instruction, sharding: Sharding, shape: Shape, main: Shape) -> Sharding:
    """Arrays of the main dimensions are split as told, what stands before those is whole; features are features."""
    feature = old.attrs.get("feature_index")
    before = shape.rank - main.rank
    if before >= 0 and shape.dims[before:] == main.dims:
        return replace(sharding, dims=(*(DimSharding(),) * before, *sharding.dims))
    if feature is not None and shape.dims == (main.dims[feature],):
        return replace(sharding, dims=(sharding.dims[feature],))
    return replace(sharding, dims=(DimSharding(),) * shape.rank)
