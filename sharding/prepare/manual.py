"""The border of a manual computation: shardings outside name the manual axes first, inside they do not exist."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding

__all__ = ["Border", "inner_sharding", "outer_sharding"]


@dataclass(frozen=True, slots=True)
class Border:
    """An edge from the source of a value to the value on the other side.

    ``given`` is the written sharding outside, of which the manual part never changes. ``inward``: the source is
    outside and the value inside; otherwise the other way round.
    """

    given: Sharding
    axes: tuple[str, ...]
    inward: bool

    def as_source(self, target: Sharding) -> Sharding:
        """The value's sharding as the source's side would write it."""
        if self.inward:
            return outer_sharding(self.given, target, self.axes)
        return inner_sharding(target, self.axes)

    def as_target(self, source: Sharding) -> Sharding:
        """A sharding in the source's form as the value's side would write it."""
        if self.inward:
            return inner_sharding(source, self.axes)
        return outer_sharding(self.given, source, self.axes)


def inner_sharding(outer: Sharding, axes: Collection[str]) -> Sharding:
    """Without the manual axes."""
    dims = tuple(replace(d, axes=_others(d.axes, axes)) for d in outer.dims)
    return replace(
        outer, dims=dims, replicated=_others(outer.replicated, axes), unreduced=_others(outer.unreduced, axes)
    )


def outer_sharding(given: Sharding, inner: Sharding, axes: Collection[str]) -> Sharding:
    """The manual part of ``given`` with the free axes of ``inner`` after it."""
    dims = tuple(
        DimSharding((*(a for a in g.axes if a.name in axes), *d.axes), d.closed, d.priority)
        for g, d in zip(given.dims, inner.dims, strict=True)
    )
    return Sharding(given.mesh, dims, given.replicated, given.unreduced, given.reduction)


def _others(refs: tuple[AxisRef, ...], axes: Collection[str]) -> tuple[AxisRef, ...]:
    return tuple(a for a in refs if a.name not in axes)
