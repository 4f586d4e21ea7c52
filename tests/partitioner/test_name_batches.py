"""Indices that count along their own batch: same numbers, nothing sent."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.prepare.name_batches import NameBatches, counted_dim

MESH = Mesh({"x": 2, "y": 4})


def wrapped(b: Builder, n: int, rows: Instruction) -> Instruction:
    """Negative indices count from the end, as JAX writes it."""
    dims = rows.shape
    zero, size = (b.add("broadcast", b.constant(v, "s32"), shape=dims, dimensions=()) for v in (0, n))
    return b.add("select", b.add("compare", rows, zero, direction="LT"), b.add("add", rows, size), rows)


def rows_of(b: Builder, r: random.Random, n: int) -> Instruction:
    """0 to n - 1 in one of the ways that programs say it."""
    made = r.choice(["iota", "constant", "wrapped", "converted"])
    shape = array_shape("s32", n)
    if made == "constant":
        return b.constant(np.arange(n, dtype=np.int32))
    if made == "converted":
        return b.add("convert", b.add("iota", shape=array_shape("u8", n), iota_dimension=0), shape=shape)
    rows = b.add("iota", shape=shape, iota_dimension=0)
    return wrapped(b, n, rows) if made == "wrapped" else rows


def indexed(r: random.Random, b: Builder, *, scatter: bool) -> Instruction:
    """``x[arange, i]`` or ``x.at[arange, i].add(u)``, some more dimensions around."""
    n, m, k, j = r.randint(2, 9), r.randint(2, 9), r.randint(1, 3), r.randint(1, 4)
    x, which = b.parameter(array_shape("f32", n, m, k)), b.parameter(array_shape("s32", n, j))
    shape = array_shape("s32", n, j, 1)
    parts = [
        b.add("broadcast", rows_of(b, r, n), shape=shape, dimensions=(0,)),
        b.add("broadcast", wrapped(b, m, which), shape=shape, dimensions=(0, 1)),
    ]
    order = r.choice([(0, 1), (1, 0)])
    indices = b.add("concatenate", *(parts[d] for d in order), dimensions=(2,))
    if not scatter:
        return b.add(
            "gather", x, indices, slice_sizes=(1, 1, k), offset_dims=(2,), collapsed_slice_dims=(0, 1),
            start_index_map=order, index_vector_dim=2,
        )  # fmt: skip
    return b.add(
        "scatter", x, indices, b.parameter(array_shape("f32", n, j, k)), update_window_dims=(2,),
        inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=order, index_vector_dim=2,
        to_apply=binary_computation(r.choice(["add", "maximum"]), "f32"),
    )  # fmt: skip


@pytest.mark.parametrize("scatter", [False, True])
def test_random_batches(scatter: bool) -> None:
    named = 0
    for seed in range(20):
        r = random.Random(f"batches {seed} {scatter}")
        b = Builder("main")
        module = with_shardings(
            b.build(indexed(r, b, scatter=scatter)), MESH, lambda i, r=r: random_sharding(r, MESH, i.shape.rank)
        )
        after = NameBatches().run(module)
        named += after is not module
        rng = np.random.default_rng(seed)
        args = [rng.integers(-3, 9, p.shape.dims).astype(p.shape.dtype.numpy) for p in module.parameters]
        np.testing.assert_array_equal(evaluate(after, args)[0], evaluate(module, args)[0])
        check(module, args)
    assert named > 10


def sharded(root: Instruction, b: Builder) -> Module:
    """Rows split, everywhere."""
    return with_shardings(
        b.build(root), MESH, lambda i: layout(MESH, *("x", *[None] * (i.shape.rank - 1))[: i.shape.rank])
    )


@pytest.mark.parametrize("scatter", [False, True])
def test_rows_and_their_indices_are_split_together(scatter: bool) -> None:
    b = Builder("main")
    assert collectives(check(sharded(indexed(random.Random(0), b, scatter=scatter), b))) == []


def test_the_diagonal_keeps_one_index() -> None:
    b = Builder("main")
    x, rows = b.parameter(array_shape("f32", 8, 8)), b.add("iota", shape=array_shape("s32", 8, 1), iota_dimension=0)
    again = b.add("reshape", b.add("iota", shape=array_shape("s32", 8), iota_dimension=0), shape=rows.shape)
    diagonal = b.add(
        "gather", x, b.add("concatenate", rows, again, dimensions=(1,)), slice_sizes=(1, 1), offset_dims=(),
        collapsed_slice_dims=(0, 1), start_index_map=(0, 1), index_vector_dim=1,
    )  # fmt: skip
    assert collectives(check(sharded(diagonal, b))) == []


def test_what_counts_and_what_does_not() -> None:
    b = Builder("main")
    line = b.add("iota", shape=array_shape("s32", 6), iota_dimension=0)
    grid = b.add("broadcast", line, shape=array_shape("s32", 4, 6), dimensions=(1,))
    assert counted_dim(grid) == 1
    assert counted_dim(b.add("transpose", grid, dimensions=(1, 0))) == 0
    assert counted_dim(b.add("reshape", grid, shape=array_shape("s32", 4, 1, 6))) == 2
    assert counted_dim(b.add("reshape", grid, shape=array_shape("s32", 24))) is None
    assert counted_dim(b.add("add", line, line)) is None
    assert counted_dim(b.constant(np.arange(1, 7))) is None
    assert counted_dim(b.add("iota", shape=array_shape("s8", 200), iota_dimension=0)) is None
    long = b.add("iota", shape=array_shape("s32", 300), iota_dimension=0)
    assert counted_dim(b.add("convert", long, shape=array_shape("u8", 300))) is None
