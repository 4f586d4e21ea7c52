"""Slices of pads become pads, products of flattened arrays contract what was flattened: same numbers, less sent."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.build import Builder
from shardc.hlo.ir import Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape
from shardc.partitioner.contract_unflattened import ContractUnflattened
from shardc.partitioner.fold_slices import FoldSlices
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report

MESH = Mesh({"x": 2, "y": 4})


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.entry if i.opcode not in ("parameter", "constant")]


@pytest.mark.parametrize("seed", range(40))
def test_slices_of_pads(seed: int) -> None:
    r = random.Random(f"pads {seed}")
    n, m = r.randint(3, 17), r.randint(2, 9)
    low, high = r.randint(-1, 4), r.randint(-1, 4)
    total = n + low + high
    start = r.randrange(total)
    limit = r.randint(start + 1, total)
    b = Builder("main")
    x = b.parameter(array_shape("f32", n, m))
    edges = ((low, high, 0), (r.randint(0, 2), 0, r.randint(0, 1)))
    padded = b.add("pad", x, b.constant(np.float32(3)), padding=edges)
    part = b.add("slice", padded, slice=((start, limit, 1), (0, padded.shape.dims[1], 1)))
    module = with_shardings(b.build(part), MESH, lambda i: random_sharding(r, MESH, i.shape.rank))
    check(module, seed=seed)
    folded = FoldSlices().run(module)
    inside = limit > max(low, 0) and start < total - max(high, 0)
    split = any(i.axis_sharding.dims[0].axes for i in (module.parameters[0], module.entry.root))
    if inside and split and (start, limit) != (0, total):
        assert opcodes(folded) == ["pad"]
        assert folded.entry.root.shape == module.entry.root.shape


def test_a_shifted_array_sends_one_row() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 64, 8))
    padded = b.add("pad", x, b.constant(np.float32(0)), padding=((1, 1, 0), (0, 0, 0)))
    part = b.add("slice", padded, slice=((2, 66, 1), (0, 8, 1)))
    spec = layout(MESH, "y", None)
    module = with_shardings(b.build(part), MESH, lambda i: spec if i.shape.rank else layout(MESH))
    assert build_report(check(module))["wire_bytes"] == 8 * 4


@pytest.mark.parametrize("batched", [False, True])
def test_products_of_flattened_arrays(batched: bool) -> None:
    b = Builder("main")
    head = (3,) if batched else ()
    dims, flat, k = (*head, 6, 8), (*head, 48), len(head)
    shapes = [array_shape("f32", *dims), array_shape("f32", *dims)]
    flattened = [b.add("reshape", b.parameter(s), shape=array_shape("f32", *flat)) for s in shapes]
    batch = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,)} if batched else {}
    dot = b.add("dot", *flattened, lhs_contracting_dims=(k,), rhs_contracting_dims=(k,), **batch)
    specs = {
        k + 2: layout(MESH, *[None] * k, "x", "y"),
        k + 1: layout(MESH, *[None] * k, "x"),
        k: layout(MESH, *head and [None]),
    }
    module = with_shardings(b.build(dot), MESH, lambda i: specs[i.shape.rank])
    assert opcodes(ContractUnflattened().run(module)) == ["dot"]
    assert collectives(check(module)) == ["all-reduce"]


def test_other_reshapes_stay() -> None:
    b = Builder("main")
    x, y = (b.parameter(array_shape("f32", *d)) for d in ((4, 6), (6, 4)))
    flat = [b.add("reshape", v, shape=array_shape("f32", 24)) for v in (x, y)]
    dot = b.add("dot", *flat, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
    specs = {2: layout(MESH, None, "x"), 1: layout(MESH, None), 0: layout(MESH)}
    module = with_shardings(b.build(dot), MESH, lambda i: specs[i.shape.rank])
    assert ContractUnflattened().run(module) is module
    check(module)
    assert partition(module).partitioned
