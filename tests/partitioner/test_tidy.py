"""Passes that leave less to compute: factors, updates, common values; the same numbers, the same shardings."""

from __future__ import annotations

import numpy as np
import pytest
from test_optimise import MESH, same
from test_optimise_exchanges import X, module_of

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.optimise.loops.hoist_arithmetic import HoistArithmetic
from shardc.partitioner.optimise.move_scales import MoveScales
from shardc.partitioner.optimise.scatter_onto import ScatterOnto
from shardc.partitioner.optimise.tidy import Tidy
from shardc.partitioner.report import build_report


def flops(module: Module) -> int:
    return int(build_report(module)["flops"])


def scaled(b: Builder, x: Instruction, factor: float, opcode: str = "multiply") -> Instruction:
    number = b.add(
        "constant", shape=array_shape(x.shape.dtype), literal=Literal(np.asarray(factor, x.shape.dtype.numpy))
    )
    return b.add(opcode, x, b.add("broadcast", number, shape=x.shape, dimensions=()))


@pytest.mark.parametrize(("first", "second"), [("multiply", "multiply"), ("divide", "multiply"), ("divide", "divide")])
def test_factors_in_a_row_are_one(first: str, second: str) -> None:
    def write(b: Builder) -> Instruction:
        x = scaled(b, b.parameter(array_shape("f32", 4, 6)), 4.0, first)
        return scaled(b, b.add("transpose", x, dimensions=(1, 0)), 0.5, second)

    before = module_of(write)
    after = MoveScales().run(before)
    same(before, after)
    assert flops(before) == 48
    assert flops(after) == 24


def test_factors_that_others_read_or_that_vanish_stay() -> None:
    def read(b: Builder) -> Instruction:
        x = scaled(b, b.parameter(array_shape("f32", 4)), 3.0)
        return b.add("add", scaled(b, x, 0.5), x)

    def tiny(b: Builder) -> Instruction:
        return scaled(b, scaled(b, b.parameter(array_shape("f32", 4)), 1e-20), 1e-20)

    def half(b: Builder) -> Instruction:
        return scaled(b, scaled(b, b.parameter(array_shape("f16", 4)), 3.0), 0.5)

    for write in (read, tiny, half):
        before = module_of(write)
        assert MoveScales().run(before) is before


def test_what_is_scattered_is_scaled_afterwards() -> None:
    def write(b: Builder) -> Instruction:
        x = scaled(b, b.parameter(array_shape("f32", 4, 6)), 0.25)
        plus = binary_computation("add", "f32")
        return b.add(
            "reduce-scatter", x, replica_groups=X, dimensions=(0,), to_apply=plus, shape=array_shape("f32", 2, 6)
        )

    before = module_of(write)
    after = MoveScales().run(before)
    same(before, after)
    assert after.entry.root.opcode == "multiply"
    assert flops(after) == 12


@pytest.mark.parametrize("others", [False, True])
def test_updates_are_added_in_place(others: bool) -> None:
    """Unless the updates alone are read as well."""

    def write(b: Builder) -> Instruction:
        x = b.parameter(array_shape("f32", 5))
        indices, updates = b.parameter(array_shape("s32", 3, 1)), b.parameter(array_shape("f32", 3))
        zero = b.add("constant", shape=array_shape("f32"), literal=Literal(np.float32(0)))
        zeros = b.add("broadcast", zero, shape=x.shape, dimensions=())
        added = b.add(
            "scatter",
            zeros,
            indices,
            updates,
            update_window_dims=(),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,),
            index_vector_dim=1,
            to_apply=binary_computation("add", "f32"),
        )
        total = b.add("add", added, x)
        return b.add("multiply", total, added) if others else total

    before = module_of(write)
    after = ScatterOnto().run(before)
    same(before, after)
    assert after is before if others else after.entry.root.opcode == "scatter"


def test_the_root_keeps_its_sharding() -> None:
    """Even where the result is an argument after all."""

    def write(b: Builder) -> Instruction:
        return scaled(b, b.parameter(array_shape("s32", 4)), 1)

    before = module_of(write)
    before.entry.root.sharding = Sharding(MESH, (DimSharding((AxisRef("x"),)),))
    after = Tidy().run(before)
    same(before, after)
    assert flops(after) == 0
    assert after.entry.root.sharding == before.entry.root.sharding


@pytest.mark.parametrize("larger", [False, True])
def test_a_loop_computes_only_what_changes(larger: bool) -> None:
    """Scaling what it never changes happens before the loop, unless that makes it larger."""
    number, x, total = array_shape("s32"), array_shape("f32", 4), array_shape("f32", 4, 8)

    def write(b: Builder) -> Instruction:
        state = tuple_shape(number, x, total)
        inside = Builder("body")
        p = inside.parameter(state)
        k, v, t = (inside.add("get-tuple-element", p, index=n) for n in range(3))
        if larger:
            v8 = scaled(inside, inside.add("broadcast", v, shape=total, dimensions=(0,)), 0.5)
        else:
            v8 = inside.add("broadcast", scaled(inside, v, 0.5), shape=total, dimensions=(0,))
        one = inside.add("constant", shape=number, literal=Literal(np.int32(1)))
        body = inside.build(inside.add("tuple", inside.add("add", k, one), v, inside.add("add", t, v8)))
        tested = Builder("condition")
        q = tested.parameter(state)
        end = tested.add("constant", shape=number, literal=Literal(np.int32(3)))
        condition = tested.build(
            tested.add("compare", tested.add("get-tuple-element", q, index=0), end, direction="LT")
        )
        zero = b.add("constant", shape=number, literal=Literal(np.int32(0)))
        start = b.add("tuple", zero, b.parameter(x), b.parameter(total))
        return b.add("while", start, shape=state, condition=condition, body=body)

    before = module_of(write)
    after = HoistArithmetic().run(before)
    same(before, after)
    assert flops(before) - flops(after) == (0 if larger else 8)
