"""Open permutes: those of slices become slices, a permute and an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.make import keep_reachable
from shardc.hlo.transforms.expand_sliced_permutes import open_permutes, sends_slices
from shardc.partitioner.optimise.varying import Axes, varying

__all__ = ["ExpandPermutes"]


@dataclass(frozen=True, slots=True)
class ExpandPermutes:
    """Write permutes of slices out where their offsets are the same on all devices; refuse the others."""

    name: str = "expand-permutes"
    why: str = "transports move whole buffers, and copies can write into other arrays"

    def run(self, module: Module) -> Module:
        if not any(map(sends_slices, module.instructions())):
            return module
        known = module.mesh is not None and module.replica_count == 1
        found: Mapping[Instruction, tuple[Axes, ...]] = varying(module) if known else {}
        after = open_permutes(module, lambda i: i in found and not any(found[i]))
        return keep_reachable(after, after.entry)
