"""Results that lie in fewer parts than propagation found for them, since their size does not divide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import bytes_text
from shardc.sharding.propagation.export import PropagationOutcome

__all__ = ["WholeResult", "whole_results"]


@dataclass(frozen=True, slots=True)
class WholeResult:
    """A result called ``name``, for which propagation found the layout ``wanted``, and which lies as ``given``."""

    name: str
    shape: Shape
    wanted: Sharding
    given: Sharding

    @property
    def dimension(self) -> int:
        """The first dimension that does not divide."""
        return _joined_dimensions(self.shape, self.wanted, self.given)[0]

    @property
    def bytes_held(self) -> int:
        """On each device, as it lies."""
        return _held(self.shape, self.given)

    @property
    def bytes_of_part(self) -> int:
        """On each device, as propagation found it."""
        return _held(self.shape, self.wanted)

    @property
    def spec(self) -> str:
        """The layout that propagation found, as a PartitionSpec is written; of parts of axes the whole axis."""
        dims = [_entry(d) for d in self.wanted.dims]
        while dims and dims[-1] == "None":
            dims.pop()
        return f"P({', '.join(dims)})"

    @property
    def reason(self) -> str:
        """Why it does not lie as propagation found it."""
        d = self.dimension
        shards, axes = self.wanted.num_shards()[d], " and ".join(a.name for a in self.wanted.dims[d].axes)
        return (
            f"each device holds {bytes_text(self.bytes_held)} instead of {bytes_text(self.bytes_of_part)}, because "
            f"dimension {d} of size {self.shape.dims[d]} is not divisible by the {shards} parts over {axes}"
        )

    @property
    def padded(self) -> int:
        """The next size of the dimension that divides."""
        shards = self.wanted.num_shards()[self.dimension]
        return -(-self.shape.dims[self.dimension] // shards) * shards


def whole_results(outcome: PropagationOutcome, partitioned: Module | None = None) -> Iterator[WholeResult]:
    """The results that `even_interface` took axes from; those with fewer elements than parts are left out, and those
    that are split all the same in the per-device program ``partitioned``."""
    held = () if partitioned is None else [leaf.nbytes for leaf in partitioned.entry.root.shape.leaves()]
    module, graph = outcome.prepared, outcome.graph
    root = module.entry.root
    names = module.result_names or ("",) * len(module.results)
    values = zip(graph.values[root], module.results, names, strict=True)
    for number, (v, shape, name) in enumerate(values):
        wanted, given = outcome.found_shardings[v], outcome.shardings[v]
        if _joined_dimensions(shape, wanted, given):
            title = name if name.startswith("result") else f"result {name or number}"
            found = WholeResult(title, shape, wanted, given)
            if number >= len(held) or held[number] >= found.bytes_held:
                yield found


def _joined_dimensions(shape: Shape, wanted: Sharding, given: Sharding) -> list[int]:
    """Dimensions that have fewer parts than ``wanted`` since these do not divide them."""
    counts = zip(shape.dims, wanted.num_shards(), given.num_shards(), strict=True)
    return [d for d, (n, k, kept) in enumerate(counts) if n % k and kept < k <= n]


def _held(shape: Shape, sharding: Sharding) -> int:
    return math.prod(sharding.local_dims(shape.dims)) * shape.dtype.nbytes


def _entry(dim: DimSharding) -> str:
    names = [repr(a.name) for a in dim.axes]
    return "None" if not names else names[0] if len(names) == 1 else f"({', '.join(names)})"
