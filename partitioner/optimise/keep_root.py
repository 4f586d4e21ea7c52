"""The entry's root tells the layouts of results, so whatever takes its place has to tell them too."""

from __future__ import annotations

from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.sharding import AnySharding

__all__ = ["with_root_sharding"]


def with_root_sharding(module: Module, sharding: AnySharding) -> Module:
    """``module`` with a root that has ``sharding``: a copy of the one that it has, if that one has another."""
    root = module.entry.root
    if root.sharding == sharding:
        return module
    root = Instruction("copy", root.shape, (root,), name=root.name, sharding=sharding, metadata=root.metadata)
    entry = Computation(module.entry.name, (*module.entry.instructions, root), root)
    computations = tuple(entry if c is module.entry else c for c in module.computations)
    return module.with_(computations=computations, entry=entry)
