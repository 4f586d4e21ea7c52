"""From dimensions to factors and back: the sharding of one tensor seen through a factor rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.sharding.axes.sub_axes import Axes, extent, merge, prefix_of_size, without_prefix
from shardc.sharding.rules.factor_rule import Factor, TensorFactors

__all__ = ["FactorState", "Projection", "project", "unproject"]


@dataclass(slots=True)
class FactorState:
    """How one tensor shards one factor.

    ``overflow`` are axes of the dimension that come after a part of the factor whose size they do not divide: they
    stay where they are and nothing can be added. ``minor`` tells that this is the last factor of its dimension, the
    only one that may be split unevenly.
    """

    axes: Axes = ()
    closed: bool = False
    minor: bool = True
    overflow: Axes = ()


@dataclass(slots=True)
class Projection:
    """One tensor: state by factor, and the axes that no dimension may take."""

    states: dict[int, FactorState]
    taken: Axes


def project(sharding: Sharding, tensor: TensorFactors, factors: Sequence[Factor], mesh: Mesh) -> Projection:
    """Hand the axes of every dimension to its factors, major to minor."""
    states: dict[int, FactorState] = {}
    for dim, indices in zip(sharding.dims, tensor, strict=True):
        _project_dim(dim, indices, factors, mesh, states)
    return Projection(states, (*sharding.replicated, *sharding.unreduced))


def _project_dim(
    dim: DimSharding, indices: Sequence[int], factors: Sequence[Factor], mesh: Mesh, states: dict[int, FactorState]
) -> None:
    rest = list(dim.axes)
    for index in indices[:-1]:
        axes, remaining = _take(rest, factors[index].size, mesh)
        state = FactorState(axes, dim.closed, minor=False)
        states[index] = state
        if remaining > 1 and rest:
            state.overflow = tuple(rest)
            for later in indices[indices.index(index) + 1 :]:
                states[later] = FactorState((), True, minor=later == indices[-1])
            return
    states[indices[-1]] = FactorState(merge(rest, mesh), dim.closed)


def _take(rest: list[AxisRef], size: int, mesh: Mesh) -> tuple[Axes, int]:
    """Move the axes that fit into a factor of ``size`` from the front of ``rest``; also what is left of the size."""
    axes: list[AxisRef] = []
    while rest:
        whole = rest[0].extent(mesh)
        common = math.gcd(size, whole)
        if common == 1 and whole > 1:
            break
        if whole > common:
            part = prefix_of_size(rest[0], common, mesh)
            assert part is not None
            left = without_prefix(rest[0], part, mesh)
            assert left is not None
            axes.append(part)
            rest[0] = left
        else:
            axes.append(rest.pop(0))
        size //= common
    return merge(axes, mesh), size


def unproject(
    states: dict[int, FactorState], tensor: TensorFactors, factors: Sequence[Factor], old: Sharding, mesh: Mesh
) -> Sharding:
    """The sharding that ``states`` mean for a tensor; where a major factor is not used up, minor ones cannot follow."""
    dims: list[DimSharding] = []
    for indices in tensor:
        axes: list[AxisRef] = []
        closed = False
        for index in indices:
            state = states[index]
            closed |= state.closed
            axes += state.axes
            if state.overflow:
                axes += state.overflow
                break
            if extent(state.axes, mesh) < factors[index].size:
                break
        dims.append(DimSharding(merge(axes, mesh), closed))
    return Sharding(mesh, tuple(dims), old.replicated, old.unreduced, old.reduction, old.manual)
