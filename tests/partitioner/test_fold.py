"""Slices of pads become pads, pads become windows', products of flattened arrays contract what was flattened: same
numbers, less sent."""

from __future__ import annotations

import random

import numpy as np
import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.partition import partition
from shardc.partitioner.prepare.contract_unflattened import ContractUnflattened
from shardc.partitioner.prepare.fold_pads import FoldPads
from shardc.partitioner.prepare.fold_slices import FoldSlices
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


# -- pads that windows read ------------------------------------------------------------------------------------------


def pooled(op: str, initial: float, edges: tuple[int, int, int], w: WindowDim) -> Module:
    """A windowed reduction over a padded array whose rows are split."""
    b = Builder("main")
    x, start = b.parameter(array_shape("f32", 32, 6)), b.constant(np.float32(initial))
    padded = b.add("pad", x, start, padding=(edges, (1, 0, 0)))
    window = Window((w, WindowDim(2)))
    made = b.add("reduce-window", padded, start, window=window, to_apply=binary_computation(op, "f32"))
    return with_shardings(b.build(made), MESH, lambda i: layout(MESH, *("y", None)[: i.shape.rank]))


@pytest.mark.parametrize(("op", "initial"), [("add", 0), ("maximum", -np.inf), ("minimum", np.inf), ("multiply", 1)])
@pytest.mark.parametrize("edges", [(1, 1, 0), (1, 1, 1), (-1, 3, 0), (2, -1, 2)])
@pytest.mark.parametrize("w", [WindowDim(2, 1), WindowDim(3, 2, 0, -1), WindowDim(2, 1, -1, 0, 2)])
def test_windows_over_pads(op: str, initial: float, edges: tuple[int, int, int], w: WindowDim) -> None:
    module = pooled(op, initial, edges, w)
    folded = FoldPads().run(module)
    assert opcodes(folded) == ["pad", "reduce-window"]
    assert folded.entry.root.operands[0].shape.dims == (32, 7)
    assert folded.entry.root.shape == module.entry.root.shape
    args = [np.random.default_rng(0).integers(-2, 3, (32, 6)).astype(np.float32)]
    np.testing.assert_array_equal(evaluate(folded, args)[0], evaluate(module, args)[0])
    check(module)


def test_an_average_pools_gradient_sends_nothing() -> None:
    """JAX spreads it by inner padding: every element of the gradient has one window that reads it."""
    module = pooled("add", 0, (1, 1, 1), WindowDim(2))
    assert build_report(check(module))["wire_bytes"] == 0


def test_what_a_pad_cuts_off_stays_away() -> None:
    module = pooled("add", 0, (-1, 0, 0), WindowDim(3, 1, 1, 1))
    assert FoldPads().run(module) is module
    check(module)


def test_pads_that_a_window_does_not_pass_over_stay() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 32))
    padded = b.add("pad", x, b.constant(np.float32(1)), padding=((1, 1, 0),))
    made = b.add(
        "reduce-window", padded, b.constant(np.float32(0)), window=Window((WindowDim(3),)),
        to_apply=binary_computation("add", "f32"),
    )  # fmt: skip
    module = with_shardings(b.build(made), MESH, lambda i: layout(MESH, *("y",)[: i.shape.rank]))
    assert FoldPads().run(module) is module
    check(module)


@pytest.mark.parametrize("edges", [(1, 1), (2, 0)])
@pytest.mark.parametrize("strides", [((1, 1), (1, 1)), ((2, 1), (1, 2))])
def test_convolutions_over_pads(edges: tuple[int, int], strides: tuple[tuple[int, int], ...]) -> None:
    b = Builder("main")
    x, y = b.parameter(array_shape("f32", 2, 3, 16, 5)), b.parameter(array_shape("f32", 3, 2, 3, 4))
    zero = b.constant(np.float32(0))
    padded = b.add("pad", x, zero, padding=((0, 0, 0), (0, 0, 0), (*edges, 1), (1, 1, 0)))
    labels = ConvDims(0, 1, (2, 3), 2, 3, (0, 1), 0, 1, (2, 3))
    window = Window(tuple(WindowDim(k, s, 0, 0, l) for k, (s, l) in zip((3, 2), strides, strict=True)))
    out = b.add("convolution", padded, y, window=window, dim_labels=labels)
    rows = (None, None, "y", None)
    module = with_shardings(
        b.build(out), MESH, lambda i: layout(MESH, *(rows if i.shape.dims[:1] == (2,) else [None] * i.shape.rank))
    )
    folded = FoldPads().run(module)
    assert folded.entry.root.operands[0].shape.dims == (2, 3, 16, 7)
    args = [np.random.default_rng(0).integers(-2, 3, p.shape.dims).astype(np.float32) for p in module.parameters]
    np.testing.assert_array_equal(evaluate(folded, args)[0], evaluate(module, args)[0])
    check(module)


@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_padded_pools(seed: int) -> None:
    """As JAX writes them: scattered into a padded array, the padding cut off again."""
    r = random.Random(f"pools {seed}")
    b = Builder("main")
    n, low, high = r.choice([16, 19, 32]), r.randint(0, 2), r.randint(0, 2)
    x, lowest = b.parameter(array_shape("f32", n, 6)), b.constant(np.float32(-np.inf))
    padded = b.add("pad", x, lowest, padding=((low, high, 0), (1, 1, 0)))
    window = Window((WindowDim(3, r.randint(1, 3)), WindowDim(2, r.randint(1, 2))))
    most = b.add("reduce-window", padded, lowest, window=window, to_apply=binary_computation("maximum", "f32"))
    c = Builder("at_least")
    a, d = (c.parameter(array_shape("f32")) for _ in range(2))
    made = b.add(
        "select-and-scatter", padded, most, b.constant(np.float32(0)), window=window,
        select=c.build(c.add("compare", a, d, direction="GE")), scatter=binary_computation("add", "f32"),
    )  # fmt: skip
    part = b.add("slice", made, slice=((low, low + n, 1), (1, 7, 1)))
    module = with_shardings(b.build(part), MESH, lambda i: layout(MESH, *("y", None)[: i.shape.rank]))
    check(module, seed=seed)
    scattered = next(i for i in FoldPads().run(module).entry if i.opcode == "select-and-scatter")
    assert scattered.shape.dims == (n, 8)
