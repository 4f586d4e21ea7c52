"""Per-device programs in lock step: what each collective means, and what would hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.hlo.errors import InputError, RunError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import Shape, array_shape, tuple_shape
from shardc.hlo.verify import verify

Array = NDArray[Any]
MESH = Mesh({"x": 2, "y": 4})
X, Y = AxisGroups(MESH, (AxisRef("x"),)), AxisGroups(MESH, (AxisRef("y"),))
ADD = binary_computation("add", "f32")
F = array_shape("f32", 8)


def run(
    build: Callable[[Builder, Instruction], Instruction], values: list[Array], *, partitions: int = 8, replicas: int = 1
) -> list[Array]:
    """The single result per device of a program of one parameter."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", *values[0].shape))
    root = build(b, x)
    module = make_module("m", b.build(root), num_partitions=partitions, replica_count=replicas, partitioned=True)
    verify(module)
    return [d[0] for d in evaluate_spmd(module, [[v] for v in values])]


def shards(*dims: int, count: int = 8) -> list[Array]:
    return list(np.random.default_rng(1).integers(0, 50, (count, *dims)).astype(np.float32))


def members(groups: Any) -> dict[int, tuple[int, ...]]:
    return {d: g for g in groups.expand() for d in g}


ALL_GROUPS = [X, Y, AxisGroups(MESH, (AxisRef("y"), AxisRef("x"))), AxisGroups(MESH, (AxisRef("y", 1, 2),))]
ALL_GROUPS += [ListGroups(((0, 5, 2, 7), (6, 1, 4, 3))), IotaGroups(2, 4, (4, 2), (1, 0))]


@pytest.mark.parametrize("groups", ALL_GROUPS)
def test_meaning_over_any_groups(groups: Any) -> None:
    values, of = shards(8, 3), members(groups)
    kept: dict[str, Any] = {"replica_groups": groups, "use_global_device_ids": True, "channel_id": 1}
    reduced = run(lambda b, x: b.add("all-reduce", x, to_apply=ADD, **kept), values)
    gathered = run(lambda b, x: b.add("all-gather", x, dimensions=(1,), **kept), values)
    scattered = run(lambda b, x: b.add("reduce-scatter", x, dimensions=(0,), to_apply=ADD, **kept), values)
    exchanged = run(lambda b, x: b.add("all-to-all", x, dimensions=(0,), **kept), values)
    for d in range(8):
        group, place = of[d], of[d].index(d)
        total = sum(values[k] for k in group)
        size = 8 // len(group)
        mine = slice(place * size, (place + 1) * size)
        np.testing.assert_array_equal(reduced[d], total)
        np.testing.assert_array_equal(gathered[d], np.concatenate([values[k] for k in group], axis=1))
        np.testing.assert_array_equal(scattered[d], total[mine])
        np.testing.assert_array_equal(exchanged[d], np.concatenate([values[k][mine] for k in group]))


def test_no_groups_means_everybody() -> None:
    values = shards(3)
    for result in run(lambda b, x: b.add("all-reduce", x, to_apply=ADD), values):
        np.testing.assert_array_equal(result, sum(values))


@pytest.mark.parametrize("opcode", ["maximum", "minimum", "multiply"])
def test_reductions(opcode: str) -> None:
    values = shards(3)
    body = binary_computation(opcode, "f32")
    results = run(lambda b, x: b.add("all-reduce", x, replica_groups=Y, to_apply=body), values)
    expected = getattr(np, opcode).reduce(values[4:])
    np.testing.assert_array_equal(results[5], expected)


def test_custom_reduction_combines_in_order_of_position() -> None:
    b = Builder("last_plus_double")
    a, c = b.parameter(array_shape("f32")), b.parameter(array_shape("f32"))
    body = b.build(b.add("add", b.add("add", a, a), c))
    values = shards(3)
    results = run(
        lambda b, x: b.add("all-reduce", x, replica_groups=ListGroups(((2, 0, 1),)), to_apply=body),
        values[:3],
        partitions=3,
    )
    np.testing.assert_array_equal(results[0], 2 * (2 * values[2] + values[0]) + values[1])


def test_several_operands_at_once() -> None:
    def build(b: Builder, x: Instruction) -> Instruction:
        pair = b.add("all-reduce", x, b.add("negate", x), replica_groups=X, to_apply=ADD)
        return b.add("get-tuple-element", pair, index=1)

    values = shards(3)
    np.testing.assert_array_equal(run(build, values)[1], -(values[1] + values[5]))


def test_all_to_all_of_a_tuple() -> None:
    def build(b: Builder, x: Instruction) -> Instruction:
        parts = [b.add("slice", x, slice=((k, k + 1, 1),)) for k in range(4)]
        mixed = b.add("all-to-all", *parts, replica_groups=Y)
        return b.add("concatenate", *(b.add("get-tuple-element", mixed, index=k) for k in range(4)), dimensions=(0,))

    values = shards(4)
    np.testing.assert_array_equal(run(build, values)[6], [values[k][2] for k in range(4, 8)])


def test_permute_gives_zeros_without_a_sender() -> None:
    values = shards(3)
    shift = AxisPairs(MESH, (AxisRef("y"),), ((0, 1), (1, 2), (2, 3)))
    results = run(lambda b, x: b.add("collective-permute", x, source_target_pairs=shift), values)
    for d in range(8):
        np.testing.assert_array_equal(results[d], values[d - 1] if d % 4 else np.zeros(3))
    swap = ListPairs(((0, 7), (7, 0)))
    results = run(lambda b, x: b.add("collective-permute", x, source_target_pairs=swap), values)
    np.testing.assert_array_equal(results[0], values[7])
    assert not results[3].any()


def test_broadcast_from_the_first_member() -> None:
    values = shards(3)
    groups = ListGroups(((2, 1), (4, 5, 6)))
    results = run(lambda b, x: b.add("collective-broadcast", x, replica_groups=groups), values)
    np.testing.assert_array_equal(results[1], values[2])
    np.testing.assert_array_equal(results[6], values[4])
    assert not results[0].any()


def test_asynchronous_pairs_mean_the_same() -> None:
    values = shards(4)

    def build(b: Builder, x: Instruction) -> Instruction:
        total = b.add("all-reduce-done", b.add("all-reduce-start", x, replica_groups=Y, to_apply=ADD))
        whole = b.add("all-gather-done", b.add("all-gather-start", total, replica_groups=X, dimensions=(0,)))
        pairs = ListPairs(tuple((d, (d + 1) % 8) for d in range(8)))
        return b.add("collective-permute-done", b.add("collective-permute-start", whole, source_target_pairs=pairs))

    halves = [sum(values[:4]), sum(values[4:])]
    for result in run(build, values):
        np.testing.assert_array_equal(result, np.concatenate(halves))


def test_wrapped_asynchronous_collective() -> None:
    inner = Builder("wrapped")
    p = inner.parameter(array_shape("f32", 4))
    body = inner.build(inner.add("reduce-scatter", p, replica_groups=Y, dimensions=(0,), to_apply=ADD))
    values = shards(4)
    results = run(lambda b, x: b.add("async-done", b.add("async-start", x, calls=body)), values)
    np.testing.assert_array_equal(results[2], sum(values[:4])[2:3])


def test_ragged_all_to_all() -> None:
    sizes = np.array([[1, 2], [0, 3]], np.int32)
    starts = np.array([[0, 1], [0, 0]], np.int32)
    places = np.array([[0, 0], [1, 2]], np.int32)
    b = Builder("main")
    data = b.parameter(array_shape("f32", 3))
    output = b.constant(-1.0, "f32", (5,))
    rows = [b.parameter(array_shape("s32", 2)) for _ in range(4)]
    root = b.add("ragged-all-to-all", data, output, *rows, replica_groups=ListGroups(((0, 1),)))
    module = make_module("m", b.build(root), num_partitions=2, partitioned=True)
    verify(module)
    values = [np.arange(3, dtype=np.float32) + 10 * d for d in range(2)]
    args = [[values[d], starts[d], sizes[d], places[d], sizes[:, d].copy()] for d in range(2)]
    first, second = evaluate_spmd(module, args)
    np.testing.assert_array_equal(first[0], [0, -1, -1, -1, -1])
    np.testing.assert_array_equal(second[0], [1, 2, 10, 11, 12])


def test_replicas_and_partitions() -> None:
    """Two replicas of two partitions; device = replica * 2 + partition."""
    values = shards(1, count=4)
    a, b_, c, d = (v[0] for v in values)

    def results(**attrs: Any) -> list[float]:
        out = run(lambda b, x: b.add("all-reduce", x, to_apply=ADD, **attrs), values, partitions=2, replicas=2)
        return [float(r[0]) for r in out]

    both = ListGroups(((0, 1),))
    assert results(replica_groups=both) == [a + c, b_ + d, a + c, b_ + d]
    assert results(replica_groups=both, channel_id=1) == [a + b_ + c + d] * 4
    alone = ListGroups(((0,), (1,)))
    assert results(replica_groups=alone, channel_id=1) == [a + b_, a + b_, c + d, c + d]
    flat = ListGroups(((0, 3), (1, 2)))
    assert results(replica_groups=flat, channel_id=1, use_global_device_ids=True) == [a + d, b_ + c, b_ + c, a + d]
    assert results() == [a + c, b_ + d, a + c, b_ + d]


def test_ids() -> None:
    b = Builder("main")
    b.add("tuple", b.add("partition-id"), b.add("replica-id"))
    module = make_module("m", b.build(), num_partitions=3, replica_count=2, partitioned=True)
    found = [(int(p), int(r)) for p, r in evaluate_spmd(module, [[]] * 6)]
    assert found == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def counted_loop(
    limit: Callable[[Builder], Instruction], step: Callable[[Builder, Instruction], Instruction]
) -> Computation:
    """A per-device program: repeat ``step`` on x, ``limit`` times."""
    state = tuple_shape(array_shape("s32"), array_shape("f32", 2))
    c = Builder("condition")
    s = c.parameter(state)
    c.add("compare", c.add("get-tuple-element", s, index=0), limit(c), direction="LT")
    b = Builder("body")
    s = b.parameter(state)
    count = b.add("add", b.add("get-tuple-element", s, index=0), b.constant(1, "s32"))
    b.add("tuple", count, step(b, b.add("get-tuple-element", s, index=1)))
    e = Builder("main")
    start = e.add("tuple", e.constant(0, "s32"), e.parameter(array_shape("f32", 2)))
    e.add("get-tuple-element", e.add("while", start, condition=c.build(), body=b.build()), index=1)
    return e.build()


def device_number(b: Builder) -> Instruction:
    return b.add("convert", b.add("partition-id"), shape=array_shape("s32"))


def test_loops_of_different_length() -> None:
    entry = counted_loop(device_number, lambda b, x: b.add("add", x, x))
    module = make_module("m", entry, num_partitions=4, partitioned=True)
    verify(module)
    results = evaluate_spmd(module, [[np.ones(2, np.float32)] for _ in range(4)])
    assert [float(r[0][0]) for r in results] == [1, 2, 4, 8]


def test_collectives_in_loops() -> None:
    groups = ListGroups(((0, 1, 2, 3),))

    def step(b: Builder, x: Instruction) -> Instruction:
        return b.add("all-reduce", x, replica_groups=groups, to_apply=ADD)

    module = make_module("m", counted_loop(lambda b: b.constant(3, "s32"), step), num_partitions=4, partitioned=True)
    results = evaluate_spmd(module, [[np.full(2, d, np.float32)] for d in range(4)])
    assert [float(r[0][0]) for r in results] == [6 * 4 * 4] * 4
    hangs = make_module("m", counted_loop(device_number, step), num_partitions=4, partitioned=True)
    with pytest.raises(RunError, match=r"devices \[0\] do not take part in all-reduce of devices \[0, 1, 2, 3\]"):
        evaluate_spmd(hangs, [[np.ones(2, np.float32)] for _ in range(4)])


def test_branches_by_device() -> None:
    def branch(opcode: str) -> Computation:
        b = Builder(opcode)
        b.add(opcode, b.parameter(array_shape("f32", 2)))
        return b.build()

    def build(b: Builder, x: Instruction) -> Instruction:
        index = device_number(b)
        names = ("negate", "exponential", "abs")
        return b.add("conditional", index, x, x, x, branch_computations=tuple(branch(n) for n in names))

    results = run(build, [np.array([-1.0, 2.0], np.float32)] * 4, partitions=4)
    np.testing.assert_array_equal(results[0], [1, -2])
    np.testing.assert_allclose(results[1], np.exp([-1, 2]), rtol=1e-6)
    np.testing.assert_array_equal(results[3], [1, 2])


def test_sharded_product_equals_the_whole() -> None:
    """x (rows over x, contracting over y) times w (contracting over y): partial sums, then all-reduce over y."""
    r = np.random.default_rng(0)
    x, w = r.integers(0, 9, (6, 8)).astype(np.float32), r.integers(0, 9, (8, 5)).astype(np.float32)
    b = Builder("main")
    p, q = b.parameter(array_shape("f32", 3, 2)), b.parameter(array_shape("f32", 2, 5))
    product = b.add("dot", p, q, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    b.add("all-reduce", product, replica_groups=Y, to_apply=ADD)
    module = make_module("m", b.build(), num_partitions=8, partitioned=True)
    args = [[x[3 * i : 3 * i + 3, 2 * j : 2 * j + 2], w[2 * j : 2 * j + 2]] for i in range(2) for j in range(4)]
    results = evaluate_spmd(module, args)
    for d in range(8):
        np.testing.assert_array_equal(results[d][0], (x @ w)[3 * (d // 4) : 3 * (d // 4) + 3])


def test_wrong_number_of_devices() -> None:
    b = Builder("main")
    b.parameter(F)
    module = make_module("m", b.build(), num_partitions=4, partitioned=True)
    with pytest.raises(InputError, match="arguments were given for 1 device, but the program runs on 4"):
        evaluate_spmd(module, [[np.zeros(8, np.float32)]])


def test_shapes_of_results_follow_the_types() -> None:
    shape: Shape = array_shape("bf16", 4)
    b = Builder("main")
    x = b.parameter(shape)
    b.add("all-reduce", x, replica_groups=ListGroups(((0, 1),)), to_apply=binary_computation("add", "bf16"))
    module = make_module("m", b.build(), num_partitions=2, partitioned=True)
    value = np.full(4, 257, shape.dtype.numpy)
    results = evaluate_spmd(module, [[value], [value]])
    assert results[0][0].dtype == shape.dtype.numpy
