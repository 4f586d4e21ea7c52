"""Cleans up after partitioning: simplifications, common subexpressions, dead instructions, loops' constant parts."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import Pass
from shardc.hlo.simplify.eliminate_common import EliminateCommon
from shardc.hlo.simplify.eliminate_dead import EliminateDead
from shardc.hlo.simplify.fold_constants import FoldConstants
from shardc.hlo.simplify.simplify import Simplify
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.loops.hoist_arithmetic import HoistArithmetic
from shardc.partitioner.optimise.move_scales import MoveScales
from shardc.partitioner.optimise.scatter_onto import ScatterOnto

__all__ = ["STEPS", "Tidy"]

STEPS: tuple[Pass, ...] = (
    EliminateCommon(),
    Simplify(),
    FoldConstants(limit=16),
    MoveScales(),
    ScatterOnto(),
    HoistArithmetic(),
    Simplify(),
    EliminateCommon(),
    EliminateDead(),
)


@dataclass(frozen=True, slots=True)
class Tidy:
    """Common subexpressions, identities, small constants and factors; the entry's root keeps its shardings."""

    name: str = "tidy"
    why: str = "no device computes a value twice"
    steps: tuple[Pass, ...] = STEPS

    def run(self, module: Module) -> Module:
        sharding = module.entry.root.sharding
        for step in self.steps:
            module = step.run(module)
        return with_root_sharding(module, sharding)
