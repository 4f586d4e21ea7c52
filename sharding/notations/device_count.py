"""How many devices a program is for, whatever its shardings are written in."""

from __future__ import annotations

import math

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import Sharding, TileSharding

__all__ = ["device_count"]


def device_count(module: Module) -> int:
    """Those of its mesh, or of its shardings, or as many as its header says."""
    if module.mesh is not None:
        return module.mesh.size
    given = [i.sharding for i in module.instructions() if i.sharding is not None]
    written = [s for g in given for s in (g if isinstance(g, tuple) else (g,))]
    tiles = (math.prod(s.tile) for s in written if isinstance(s, TileSharding) and s.kind == "tiled")
    return max(module.num_partitions, *tiles, *(s.mesh.size for s in written if isinstance(s, Sharding)), 1)
