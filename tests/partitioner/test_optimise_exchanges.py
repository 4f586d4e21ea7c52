"""Passes over sums, conversions and exchanges: fewer bytes, the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from partition_support import collectives
from test_optimise import MESH, same

from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.optimise.move_converts import MoveConverts
from shardc.partitioner.optimise.reassociate import Reassociate
from shardc.partitioner.optimise.simplify_exchanges import SimplifyExchanges
from shardc.partitioner.report import build_report

X, Y = (AxisGroups(MESH, (AxisRef(a),)) for a in "xy")


def module_of(write: Callable[[Builder], Instruction]) -> Module:
    b = Builder("main")
    return make_module("m", b.build(write(b)), mesh=MESH, num_partitions=4, partitioned=True)


def reduced(b: Builder, x: Instruction, groups: AxisGroups = X, opcode: str = "add") -> Instruction:
    return b.add("all-reduce", x, replica_groups=groups, to_apply=binary_computation(opcode, "f32"))


def gathered(b: Builder, x: Instruction) -> Instruction:
    dims = (x.shape.dims[0] * 2, *x.shape.dims[1:])
    return b.add("all-gather", x, replica_groups=X, dimensions=(0,), shape=x.shape.with_dims(dims))


def wire(module: Module) -> float:
    return float(build_report(module)["wire_bytes"])


@pytest.mark.parametrize(("opcode", "reducer"), [("add", "add"), ("subtract", "add"), ("maximum", "maximum")])
def test_a_sum_of_sums_is_reduced_once(opcode: str, reducer: str) -> None:
    def write(b: Builder) -> Instruction:
        parts = [reduced(b, b.parameter(array_shape("f32", 4)), X, reducer) for _ in range(4)]
        return b.add(opcode, b.add(opcode, parts[0], parts[1]), b.add(opcode, parts[2], parts[3]))

    before = module_of(write)
    after = Reassociate().run(before)
    same(before, after)
    assert collectives(after) == ["all-reduce"]


def test_sums_over_other_groups_by_other_reducers_or_with_other_readers_stay() -> None:
    def groups(b: Builder) -> Instruction:
        p = b.parameter(array_shape("f32", 4))
        return b.add("add", reduced(b, p, X), reduced(b, p, Y))

    def reducers(b: Builder) -> Instruction:
        p = b.parameter(array_shape("f32", 4))
        return b.add("add", reduced(b, p, X, "maximum"), reduced(b, p, X, "maximum"))

    def readers(b: Builder) -> Instruction:
        p, q = reduced(b, b.parameter(array_shape("f32", 4))), reduced(b, b.parameter(array_shape("f32", 4)))
        return b.add("multiply", b.add("add", p, q), p)

    for write in (groups, reducers, readers):
        before = module_of(write)
        assert Reassociate().run(before) is before


def test_a_widened_value_travels_narrow() -> None:
    def write(b: Builder) -> Instruction:
        x = b.add("convert", b.parameter(array_shape("bf16", 4, 2)), shape=array_shape("f32", 4, 2))
        turned = b.add("transpose", x, dimensions=(1, 0))
        return b.add("add", gathered(b, turned), gathered(b, turned))

    before = module_of(write)
    after = MoveConverts().run(before)
    same(before, after)
    assert wire(after) == wire(before) / 2


def test_a_value_that_all_readers_narrow_travels_narrow() -> None:
    def write(b: Builder) -> Instruction:
        wide = gathered(b, b.parameter(array_shape("f32", 4, 2)))
        turned = b.add("transpose", wide, dimensions=(1, 0))
        low = [b.add("convert", turned, shape=turned.shape.with_dtype("bf16")) for _ in range(2)]
        return b.add("add", *low)

    before = module_of(write)
    after = MoveConverts().run(before)
    same(before, after)
    assert wire(after) == wire(before) / 2


def test_a_value_that_somebody_reads_wide_travels_wide() -> None:
    def write(b: Builder) -> Instruction:
        wide = gathered(b, b.parameter(array_shape("f32", 4)))
        return b.add("tuple", b.add("convert", wide, shape=wide.shape.with_dtype("bf16")), b.add("negate", wide))

    def partial(b: Builder) -> Instruction:
        x = b.add("convert", b.parameter(array_shape("bf16", 4)), shape=array_shape("f32", 4))
        return reduced(b, x)

    for case in (write, partial):
        before = module_of(case)
        assert MoveConverts().run(before) is before


def permuted(b: Builder, x: Instruction, *pairs: tuple[int, int]) -> Instruction:
    return b.add("collective-permute", x, source_target_pairs=AxisPairs(MESH, (AxisRef("x"), AxisRef("y")), pairs))


def test_permutes_of_permutes_are_one() -> None:
    ring = ((0, 1), (1, 2), (2, 3), (3, 0))

    def around(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 4))
        for _ in range(4):
            x = permuted(b, x, *ring)
        return b.add("negate", x)

    def off_the_end(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 4))
        return permuted(b, permuted(b, x, *ring[:3]), *ring[:3])

    for write, left in ((around, 0), (off_the_end, 1)):
        before = module_of(write)
        after = SimplifyExchanges().run(before)
        same(before, after)
        assert len(collectives(after)) == left


def test_an_exchange_and_back_is_nothing() -> None:
    def write(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 3, 2))
        for _ in range(2):
            x = b.add("all-to-all", x, replica_groups=X, dimensions=(1,))
        return b.add("negate", x)

    before = module_of(write)
    after = SimplifyExchanges().run(before)
    same(before, after)
    assert not collectives(after)


def test_constants_do_not_travel() -> None:
    def write(b: Builder) -> Instruction:
        splat = b.constant(3, "f32", (4, 2))
        scalar = b.add("broadcast", b.constant(2, "f32"), dimensions=(), shape=array_shape("f32", 4, 2))
        total = b.add("add", gathered(b, splat), gathered(b, scalar))
        return b.add("add", total, b.parameter(array_shape("f32", 8, 2)))

    before = module_of(write)
    after = SimplifyExchanges().run(before)
    same(before, after)
    assert not collectives(after)


@pytest.mark.parametrize("whole", [False, True])
def test_permutes_over_different_axes_are_one(whole: bool) -> None:
    """An array flipped along two split dimensions goes straight to the opposite device."""
    swap = ((0, 1), (1, 0)) if whole else ((0, 1),)

    def write(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 4))
        for axis in "xy":
            x = b.add("collective-permute", x, source_target_pairs=AxisPairs(MESH, (AxisRef(axis),), swap))
        return x

    before = module_of(write)
    after = SimplifyExchanges().run(before)
    same(before, after)
    assert collectives(after) == ["collective-permute"]


@pytest.mark.parametrize("order", ["xy", "yx"])
@pytest.mark.parametrize("first", [False, True])
def test_permutes_over_some_of_the_axes_are_one_with_those_over_all(order: str, first: bool) -> None:
    several = AxisPairs(MESH, tuple(map(AxisRef, order)), ((0, 1), (1, 2), (2, 3), (3, 0)))
    single = AxisPairs(MESH, (AxisRef("y"),), ((1, 0), (0, 1)))

    def write(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 4))
        for pairs in (single, several) if first else (several, single):
            x = b.add("collective-permute", x, source_target_pairs=pairs)
        return x

    before = module_of(write)
    after = SimplifyExchanges().run(before)
    same(before, after)
    assert collectives(after) == ["collective-permute"]
