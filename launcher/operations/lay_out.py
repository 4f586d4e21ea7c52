"""How the results of an operation on arrays lie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.numpy.trace_call import TracedCall
from shardc.sharding.notations.annotate import with_shardings
from shardc.sharding.propagate import propagate

__all__ = ["lay_out"]

#: Dimensions are near one another within this factor.
_NEAR = 2


def lay_out(traced: TracedCall, given: Sequence[Sharding | None], placed: Sharding | None = None) -> Module:
    """The module over the mesh of its arguments. What is changed in place stays where it lies, and its memory is
    written over; other results lie as propagation has it, or in more parts, as an argument of nearly their size;
    or as ``placed`` says. Raises `InputError` for arguments over different meshes.
    """
    module = traced.module
    assert module is not None
    meshes: dict[Mesh, None] = {s.mesh: None for s in (*given, placed) if s is not None}
    if not meshes:
        return module
    if len(meshes) > 1:
        raise InputError(
            f"one operation has arrays over different meshes: {', '.join(map(str, meshes))}",
            fix="move them to one mesh: shardc.reshard(x, y.sharding)",
        )
    mesh = next(iter(meshes))
    module = module.with_(mesh=mesh, num_partitions=mesh.size, donors=traced.changed)
    arguments = {p: s for p, s in zip(module.parameters, given, strict=True) if s is not None}
    if placed is not None:
        return with_shardings(module, arguments, [placed] * len(module.results))
    changed = [given[n] for n in traced.changed]
    # How results lie that nobody asks to be in even parts shows before a copy of them.
    root = propagate(with_shardings(module, arguments, copied=True)).module.entry.root
    count = len(module.results) - len(changed)
    propagated = [made.operands[0].sharding for made in root.operands[:count]]
    results = [_split(p, r, arguments) for p, r in zip(propagated, module.results, strict=False)]
    return with_shardings(module, arguments, [*results, *changed])


def _split(propagated: object, result: Shape, arguments: Mapping[Instruction, Sharding]) -> Sharding | None:
    """As propagated, without axes of more parts than elements; or as the largest argument of nearly the result's
    dimensions lies, where that is in more parts."""
    found = None
    if isinstance(propagated, Sharding) and not propagated.unreduced and not propagated.manual:
        pairs = zip(propagated.as_layout.dims, propagated.num_shards(), result.dims, strict=True)
        found = Sharding(propagated.mesh, tuple(d if k <= n else DimSharding() for d, k, n in pairs))
    parts = 1 if found is None else math.prod(found.num_shards())
    near = [
        (p.shape.size, s)
        for p, s in arguments.items()
        if math.prod(s.num_shards()) > parts
        and p.shape.rank == result.rank
        and all(n <= _NEAR * r and r <= _NEAR * n for n, r in zip(p.shape.dims, result.dims, strict=True))
    ]
    return max(near, key=lambda pair: pair[0])[1] if near else found
