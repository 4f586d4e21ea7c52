"""Arrays without elements: there is nothing to fetch from anybody, and their programs partition all the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from partition_support import check, random_sharding, with_shardings

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape

MESHES = (Mesh({"x": 2}), Mesh({"x": 3}), Mesh({"x": 2, "y": 2}))
DIMS = ((0, 6), (6, 0), (0, 0))


def joined(dims: tuple[int, ...], dim: int) -> Computation:
    b = Builder("main")
    x = b.parameter(array_shape("f32", *dims))
    return b.build(b.add("concatenate", x, x, dimensions=(dim,)))


def in_order(dims: tuple[int, ...], dim: int) -> Computation:
    less = Builder("less")
    less_is = less.build(less.add("compare", *(less.parameter(array_shape("s32")) for _ in range(2)), direction="LT"))
    b = Builder("main")
    return b.build(b.add("sort", b.parameter(array_shape("s32", *dims)), dimensions=(dim,), to_apply=less_is))


@pytest.mark.parametrize("make", [joined, in_order])
@pytest.mark.parametrize("dims", DIMS)
def test_empty_dimensions_are_split_like_others(
    make: Callable[[tuple[int, ...], int], Computation], dims: tuple[int, ...]
) -> None:
    for mesh, dim, seed in itertools.product(MESHES, (0, 1), range(4)):
        check(with_shardings(make(dims, dim), mesh, _any_of(random.Random(seed), mesh)))


def _any_of(r: random.Random, mesh: Mesh) -> Callable[[Instruction], Sharding]:
    return lambda i: random_sharding(r, mesh, i.shape.rank)
