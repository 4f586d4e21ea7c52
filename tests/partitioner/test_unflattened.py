"""Reductions and searches of flattened arrays work on the dimensions that were flattened."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, random_sharding, with_shardings

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.report import build_report

MESH = Mesh({"x": 2, "y": 4})
MESHES = (MESH, Mesh({"x": 8}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 3, "y": 2}))


def flat(x: Instruction, b: Builder, start: int = 0) -> Instruction:
    dims = x.shape.dims
    merged = (*dims[:start], int(np.prod(dims[start:])))
    return b.add("reshape", x, shape=x.shape.with_dims(merged))


def first_largest() -> Computation:
    """The larger value, of equal ones the smaller position."""
    b = Builder("first_largest")
    x, i, y, j = (b.parameter(array_shape(t)) for t in ("s32", "s32", "s32", "s32"))
    more = b.add("compare", x, y, direction="GT")
    same = b.add("and", b.add("compare", x, y, direction="EQ"), b.add("compare", i, j, direction="LT"))
    which = b.add("or", more, same)
    return b.build(b.add("tuple", b.add("select", which, x, y), b.add("select", which, i, j)))


def argmax(dims: tuple[int, ...], start: int = 0) -> Computation:
    b = Builder("main")
    x = flat(b.parameter(array_shape("s32", *dims)), b, start)
    places = b.add("iota", shape=x.shape, iota_dimension=start)
    least, none = b.constant(-1000, "s32"), b.constant(0, "s32")
    return b.build(b.add("reduce", x, places, least, none, dimensions=(start,), to_apply=first_largest()))


def norm(dims: tuple[int, ...], start: int = 0) -> Computation:
    """Sum of (x + 2) (y + 1), both flattened, one as it is and one scaled."""
    b = Builder("main")
    x, y = (flat(b.parameter(array_shape("f32", *dims)), b, start) for _ in range(2))
    two = b.constant(2.0, "f32", x.shape.dims)
    one = b.add("broadcast", b.constant(1.0, "f32"), shape=x.shape, dimensions=())
    product = b.add("multiply", b.add("add", x, two), b.add("add", y, one))
    add = binary_computation("add", "f32")
    return b.build(b.add("reduce", product, b.constant(0.0, "f32"), dimensions=(start,), to_apply=add))


def best(dims: tuple[int, ...], start: int = 0, k: int = 2) -> Computation:
    b = Builder("main")
    x = flat(b.parameter(array_shape("f32", *dims)), b, start)
    return b.build(b.add("topk", x, k=min(k, x.shape.dims[-1]), largest=True))


def placed(made: Computation, mesh: Mesh, *axes: str | tuple[str, ...] | None) -> Module:
    """The parameters split, everything else whole: what propagation makes of a split that is flattened away."""
    split = Sharding.of(mesh, *axes)
    return with_shardings(
        made, mesh, lambda i: split if i.opcode == "parameter" else Sharding.replicate(mesh, i.shape.rank)
    )


@pytest.mark.parametrize("axes", [(None, "x", "y"), (None, None, ("x", "y")), ("y", None, "x")])
@pytest.mark.parametrize(("make", "most"), [(argmax, 100), (norm, 10), (best, 3500)])
def test_only_results_of_shards_are_sent(make: object, most: int, axes: tuple[str | None, ...]) -> None:
    module = placed(make((3, 10, 111)), MESH, *axes)  # type: ignore[operator]
    assert build_report(check(module))["wire_bytes"] < most


@pytest.mark.parametrize("make", [argmax, norm, best])
def test_random_layouts(make: object) -> None:
    for seed in range(30):
        r = random.Random(seed)
        mesh = r.choice(MESHES)
        dims = tuple(r.randint(1, 9) for _ in range(r.randint(2, 4)))
        made = make(dims, r.randrange(len(dims) - 1))  # type: ignore[operator]
        check(with_shardings(made, mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


def test_equal_values_are_found_in_order() -> None:
    module = placed(best((4, 6), k=12), MESH, None, ("x", "y"))
    check(module, [np.ones((4, 6), np.float32)])
    check(module, [np.tile(np.array([np.nan, 1, -0.0, 0.0, 1, np.nan], np.float32), (4, 1))])


def test_what_others_read_flat_stays_flat() -> None:
    """Nothing is computed twice: the flat sum is a result as well."""
    b = Builder("main")
    x = flat(b.parameter(array_shape("f32", 4, 8)), b)
    double = b.add("add", x, x)
    add = binary_computation("add", "f32")
    total = b.add("reduce", double, b.constant(0.0, "f32"), dimensions=(0,), to_apply=add)
    module = placed(b.build(b.add("tuple", double, total)), MESH, None, ("x", "y"))
    local = check(module)
    assert sum(i.opcode == "add" and i.shape.rank > 0 for i in local.instructions()) == 1
    assert collectives(local).count("all-gather") == 1
