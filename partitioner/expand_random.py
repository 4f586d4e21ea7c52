"""``rng`` becomes the draw by counter that it stands for: every device draws its part of the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.hlo.expand_random import expand_rng
from shardc.hlo.ir import Instruction, Module, rebuild_module
from shardc.hlo.sharding import DimSharding, Sharding
from shardc.hlo.types import Shape

__all__ = ["ExpandRandom"]


@dataclass(frozen=True, slots=True)
class ExpandRandom:
    """All draws, also whole ones: devices would not agree about numbers that HLO leaves open."""

    name: str = "expand-random"
    why: str = "which numbers a device draws must not depend on how the array is split"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _expanded)


def _expanded(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    if old.opcode != "rng" or not isinstance(old.sharding, Sharding):
        return None
    body = expand_rng(old)
    new = dict(zip(body.parameters, operands, strict=True))
    for i in body:
        if i.opcode != "parameter":
            shardings = tuple(_like(old.sharding, leaf, old.shape) for leaf in i.shape.leaves())
            sharding = shardings if i.shape.is_tuple else shardings[0]
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands), sharding=sharding, metadata=old.metadata)
    return new[body.root]


def _like(sharding: Sharding, shape: Shape, drawn: Shape) -> Sharding:
    """Dimensions of the drawn array are split as it is, what stands before them is whole."""
    extra = shape.rank - drawn.rank
    fits = extra >= 0 and shape.dims[extra:] == drawn.dims
    own = sharding.dims if fits else (DimSharding(),) * shape.rank
    return replace(sharding, dims=(*(DimSharding(),) * (extra if fits else 0), *own))
