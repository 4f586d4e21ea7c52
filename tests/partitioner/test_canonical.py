"""The collectives of well-known parallel programs, annotated on their parameters and propagated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from partition_programs import matmul, total, zeros
from partition_support import check, collectives, layout

from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.report import build_report
from shardc.sharding.propagate import propagate

MESH = Mesh({"data": 2, "model": 2})


def run(b: Builder, root: Instruction, mesh: Mesh = MESH) -> Module:
    """Propagate, partition, compare exactly; the partitioned module."""
    module = propagate(make_module("canonical", b.build(root), mesh=mesh)).module
    return check(module)


def counts(module: Module) -> dict[str, int]:
    return dict(Counter(collectives(module)))


def parameter(b: Builder, name: str, dims: Sequence[int], sharding: Sharding) -> Instruction:
    return b.parameter(array_shape("f32", *dims), name, sharding=sharding)


def result(b: Builder, *values: tuple[Instruction, Sharding]) -> Instruction:
    """The root tuple with result shardings."""
    if len(values) == 1:
        x, sharding = values[0]
        return b.add("custom-call", x, shape=x.shape, custom_call_target="Sharding", sharding=sharding)
    return b.add("tuple", *(v for v, _ in values), sharding=tuple(s for _, s in values))


def transposed(b: Builder, x: Instruction) -> Instruction:
    return b.add("transpose", x, dimensions=(1, 0))


def test_tensor_parallel_mlp_is_one_all_reduce() -> None:
    b = Builder("mlp")
    x = parameter(b, "x", (8, 16), layout(MESH, "data", None))
    w1 = parameter(b, "w1", (16, 32), layout(MESH, None, "model"))
    w2 = parameter(b, "w2", (32, 16), layout(MESH, "model", None))
    h = b.add("maximum", matmul(b, x, w1), zeros(b, 8, 32))
    y = b.add("add", matmul(b, h, w2), x)
    local = run(b, result(b, (b.add("maximum", y, zeros(b, 8, 16)), layout(MESH, "data", None))))
    assert counts(local) == {"all-reduce": 1}
    report = build_report(local)
    (row,) = report["collectives"]
    assert row["axes"] == ["model"]
    assert "contracted dimension" in row["reason"]
    assert row["wire_bytes"] == 2 * 4 * 16 * 4 // 2 == report["wire_bytes"]


def test_data_parallel_gradient_is_one_all_reduce() -> None:
    b = Builder("gradient")
    x = parameter(b, "x", (8, 16), layout(MESH, ("data", "model"), None))
    y = parameter(b, "y", (8, 4), layout(MESH, ("data", "model"), None))
    w = parameter(b, "w", (16, 4), layout(MESH, None, None))
    error = b.add("subtract", matmul(b, x, w), y)
    gradient = transposed(b, matmul(b, transposed(b, error), x))
    step = b.add("multiply", gradient, zeros(b, 16, 4, value=0.5))
    local = run(b, result(b, (b.add("subtract", w, step), layout(MESH, None, None))))
    assert counts(local) == {"all-reduce": 1}


def test_fsdp_is_all_gather_and_reduce_scatter() -> None:
    mesh = Mesh({"data": 4})
    b = Builder("fsdp")
    x = parameter(b, "x", (64, 16), layout(mesh, "data", None))
    w = parameter(b, "w", (16, 8), layout(mesh, "data", None))
    y = matmul(b, x, w)
    gradient = matmul(b, transposed(b, x), b.add("maximum", y, zeros(b, 64, 8)))
    local = run(b, result(b, (b.add("subtract", w, gradient), layout(mesh, "data", None))), mesh)
    assert counts(local) == {"all-gather": 1, "reduce-scatter": 1}
    report = build_report(local)
    assert report["wire_bytes"] == 16 * 8 * 4 * 3 // 4 * 2


def test_two_partial_products_are_reduced_once() -> None:
    b = Builder("sum")
    rows, columns = layout(MESH, None, "model"), layout(MESH, "model", None)
    products = []
    for i in range(3):
        x, w = parameter(b, f"x{i}", (4, 8), rows), parameter(b, f"w{i}", (8, 4), columns)
        products.append(b.add("multiply", matmul(b, x, w), zeros(b, 4, 4, value=float(i + 1))))
    y = b.add("subtract", b.add("add", products[0], products[1]), products[2])
    local = run(b, result(b, (b.add("maximum", y, zeros(b, 4, 4)), layout(MESH, None, None))))
    assert counts(local) == {"all-reduce": 1}


def test_sequence_parallel_is_reduce_scatter_and_all_gather() -> None:
    mesh = Mesh({"model": 4})
    b = Builder("sequence")
    x = parameter(b, "x", (16, 8), layout(mesh, "model", None))
    w1 = parameter(b, "w1", (8, 64), layout(mesh, None, "model"))
    w2 = parameter(b, "w2", (64, 8), layout(mesh, "model", None))
    h = b.add("maximum", matmul(b, b.add("abs", x), w1), zeros(b, 16, 64))
    y = b.add("add", matmul(b, h, w2), x)
    local = run(b, result(b, (y, layout(mesh, "model", None))), mesh)
    assert counts(local) == {"all-gather": 1, "reduce-scatter": 1}


def test_vocabulary_sharded_embedding_sums_masked_rows() -> None:
    b = Builder("embedding")
    table = parameter(b, "table", (50, 8), layout(MESH, "model", None))
    tokens = b.parameter(array_shape("s32", 8), "tokens", sharding=layout(MESH, "data"))
    attrs = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
    rows = b.add("gather", table, tokens, slice_sizes=(1, 8), **attrs)
    local = run(b, result(b, (b.add("abs", rows), layout(MESH, "data", None))))
    assert counts(local) == {"all-reduce": 1}
    assert build_report(local)["collectives"][0]["axes"] == ["model"]


def test_elementwise_chain_needs_nothing() -> None:
    b = Builder("chain")
    x = parameter(b, "x", (7, 5), layout(MESH, "data", "model"))
    y = x
    for opcode in ("abs", "negate", "floor"):
        y = b.add("add", b.add(opcode, y), x)
    local = run(b, result(b, (y, layout(MESH, "data", "model"))))
    assert counts(local) == {}


def test_softmax_over_a_split_dimension_moves_only_row_statistics() -> None:
    mesh = Mesh({"model": 4})
    b = Builder("softmax")
    x = parameter(b, "x", (16, 64), layout(mesh, None, "model"))
    top = total(b, x, (1,), "maximum", -np.inf)
    shifted = b.add("subtract", x, b.add("broadcast", top, shape=x.shape, dimensions=(0,)))
    scale = b.add("broadcast", total(b, shifted, (1,)), shape=x.shape, dimensions=(0,))
    local = run(b, result(b, (b.add("multiply", shifted, scale), layout(mesh, None, "model"))), mesh)
    assert counts(local) == {"all-reduce": 2}
    assert all(row["payload_bytes"] == 16 * 4 for row in build_report(local)["collectives"])


def test_transpose_of_the_sharding_is_an_all_to_all() -> None:
    mesh = Mesh({"x": 4})
    b = Builder("transpose")
    x = parameter(b, "x", (16, 8), layout(mesh, "x", None))
    local = run(b, result(b, (x, layout(mesh, None, "x"))), mesh)
    assert counts(local) == {"all-to-all": 1}


def scan(mesh: Mesh, steps: int) -> tuple[Builder, Instruction]:
    """A loop over stacked weights that are split over the data axis."""
    b = Builder("scan")
    x = parameter(b, "x", (64, 16), layout(mesh, "data", None))
    w = parameter(b, "w", (steps, 16, 16), layout(mesh, None, "data", None))
    init = b.add("tuple", b.constant(0, "s32"), x, w)
    c = Builder("condition")
    p = c.parameter(init.shape)
    test = c.build(c.add("compare", c.add("get-tuple-element", p, index=0), c.constant(steps, "s32"), direction="LT"))
    loop = Builder("body")
    p = loop.parameter(init.shape)
    i, h, stack = (loop.add("get-tuple-element", p, index=k) for k in range(3))
    zero = loop.constant(0, "s32")
    layer = loop.add("dynamic-slice", stack, i, zero, zero, dynamic_slice_sizes=(1, 16, 16))
    layer = loop.add("reshape", layer, shape=array_shape("f32", 16, 16))
    h = loop.add("clamp", loop.constant(-3.0, "f32"), matmul(loop, h, layer), loop.constant(3.0, "f32"))
    body = loop.build(loop.add("tuple", loop.add("add", i, loop.constant(1, "s32")), h, stack))
    out = b.add("while", init, condition=test, body=body)
    return b, b.add("get-tuple-element", out, index=1)


def test_fsdp_scan_gathers_one_layer_at_a_time() -> None:
    mesh = Mesh({"data": 4})
    b, h = scan(mesh, 5)
    local = run(b, result(b, (h, layout(mesh, "data", None))), mesh)
    (row,) = build_report(local)["collectives"]
    assert (row["op"], row["count"], row["payload_bytes"]) == ("all-gather", 5, 16 * 16 * 4)
    assert row["wire_bytes"] == 5 * 16 * 16 * 4 * 3 // 4
    assert not row["unknown_trip_count"]


def test_a_large_callee_is_partitioned_once() -> None:
    b = Builder("calls")
    c = Builder("square")
    value = c.parameter(array_shape("f32", 8))
    for _ in range(2000):
        value = c.add("negate", value)
    square = c.build(c.add("multiply", value, value))
    x = parameter(b, "x", (8,), layout(MESH, "data"))
    y = b.add("call", b.add("call", x, to_apply=square), to_apply=square)
    local = run(b, result(b, (y, layout(MESH, "data"))))
    assert [c.name for c in local.computations if c.name.startswith("square")] == ["square"]


def test_scatter_add_of_split_updates_is_one_reduction() -> None:
    b = Builder("scatter")
    tokens = b.parameter(array_shape("s32", 64, 1), "tokens", sharding=layout(MESH, "data", None))
    updates = parameter(b, "updates", (64, 4), layout(MESH, "data", None))
    attrs = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    body = binary_computation("add", "f32")
    table = b.add("scatter", zeros(b, 10, 4), tokens, updates, index_vector_dim=1, to_apply=body, **attrs)
    local = run(b, result(b, (b.add("abs", table), layout(MESH, None, None))))
    assert counts(local) == {"all-reduce": 1}
