"""Random programs of dimensions of sizes 0, 1 and 2 on axes that are larger: most shards are empty."""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzz_cases import alive, annotated, stored
from fuzz_grow import Grown
from fuzz_ops import STEPS, grow
from partition_support import with_shardings

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.propagate import propagate

__all__ = ["make_small_case"]

AXES = ((2,), (3,), (5,), (7,), (2, 2), (3, 2))


def make_small_case(seed: int) -> Module:
    """The propagated module of a seed; the first step goes round the steps that there are."""
    r = random.Random(seed)
    mesh = Mesh(dict(zip("xy", r.choice(AXES), strict=False)))
    sizes = r.choice(((0, 1, 2), (1, 2), (1, 2, 3)))
    g = Grown(r, mesh=None if seed % 2 else mesh, sizes=sizes)
    for _ in range(r.randint(1, 2)):
        g.fresh(g.dims(r.choice([1, 2, 2, 3, 3])))
    _try(g, lambda: STEPS[seed // 2 % len(STEPS)](g, g.pick()))
    for _ in range(r.randint(0, 6)):
        _try(g, lambda: grow(g, 1))
    chosen = g.values[-1:] + [v for v in g.values[:-1] if r.random() < 0.2]
    computation = alive(g.b.build(g.b.add("tuple", *chosen)))
    if seed % 2:
        used = r.choice([0.7, 1.0])
        return with_shardings(computation, mesh, lambda i: stored(r, mesh, i, used))
    return propagate(annotated(r, computation, mesh)).module


def _try(g: Grown, step: Callable[[], object]) -> None:
    """A step that asks for what no operation has, a collapsed slice of an empty dimension say, is left out."""
    before = len(g.values)
    try:
        step()
    except ShardcError:
        del g.values[before:]
