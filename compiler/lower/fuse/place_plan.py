"""What kernels that read a few places of sorted rows are made of: one sort, and slices of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.sort_keys import SortKey, leading_places, sort_keys

__all__ = ["PlacePlan", "plan_of_reads", "plan_places"]

#: Elements of a row for each search from which on a walk over them costs less than the sort.
_LEAST = 1 << 11
#: Most places of a sort that are read.
_MOST = 64


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """``sort`` by ``key``, and the ``slices`` of it that are all that anybody reads."""

    sort: Instruction
    key: SortKey
    slices: tuple[Instruction, ...]

    @property
    def dim(self) -> int:
        (dim,) = self.sort.attrs["dimensions"]
        return int(dim)

    def read_by(self, part: Instruction) -> range:
        """The places that one of the slices reads."""
        return range(*part.attrs["slice"][self.dim])

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(sorted({p for s in self.slices for p in self.read_by(s)}))

    @property
    def leading(self) -> tuple[int, ...]:
        """Places that are searched; each of the others is the next one after such a place."""
        return leading_places(self.places)


def plan_of_reads(sort: Instruction, readers: Sequence[Instruction]) -> PlacePlan | None:
    """The plan of a sort with these readers; None where it costs less to sort."""
    if sort.opcode != "sort" or not sort.shape.is_array or len(sort.operands) != 1 or not readers:
        return None
    (dim,) = sort.attrs["dimensions"]
    dims, keys = sort.shape.dims, sort_keys(sort.attrs["to_apply"])
    if keys is None or dims[dim] < _LEAST or 0 in dims:
        return None
    if any(r.opcode != "slice" or not _is_whole_beside(r, dim) for r in readers):
        return None
    if sum(r.shape.dims[dim] for r in readers) > _MOST:
        return None
    plan = PlacePlan(sort, keys[0], tuple(readers))
    return plan if dims[dim] >= _LEAST * len(plan.leading) else None


def _is_whole_beside(reader: Instruction, dim: int) -> bool:
    """Whether a slice reads all of the dimensions other than ``dim``."""
    dims = reader.operands[0].shape.dims
    return all(d == dim or s == (0, n, 1) for d, (s, n) in enumerate(zip(reader.attrs["slice"], dims, strict=True)))


@lru_cache(maxsize=256)
def plan_places(computation: Computation) -> PlacePlan | None:
    """The plan of a fused computation; None where it is another."""
    sort = next((i for i in computation if i.opcode == "sort"), None)
    if sort is None or sort.operands[0].opcode != "parameter":
        return None
    return plan_of_reads(sort, [i for i in computation if sort in i.operands])
