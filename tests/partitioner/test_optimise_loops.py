"""Passes over loops: accumulators are reduced once, what never changes is gathered once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from partition_support import collectives
from test_optimise import MESH, same

from shardc.costs.kernels.peak_memory import estimate_peak
from shardc.costs.machines.machine import load_machine
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.hlo.text.printer import print_module
from shardc.partitioner.optimise.loops.hoist_collectives import HoistCollectives
from shardc.partitioner.optimise.loops.sink_reductions import SinkReductions
from shardc.partitioner.report import build_report

GROUPS = AxisGroups(MESH, (AxisRef("x"),))
ROWS = array_shape("f32", 4, 4)


def counting(state: tuple[str, ...], trips: int) -> Computation:
    """Runs while element 0 is less than ``trips``."""
    b = Builder("condition")
    shapes = [array_shape("s32"), *(array_shape(t, 4, 4) for t in state)]
    p = b.parameter(tuple_shape(*shapes))
    return b.build(b.add("compare", b.add("get-tuple-element", p, index=0), b.constant(trips, "s32"), direction="LT"))


class Loop:
    """A loop over a counter and 4x4 arrays, whose body is written by the test."""

    def __init__(self, *types: str, trips: int = 5) -> None:
        self.condition = counting(types, trips)
        self.types = types
        self.b = Builder("body")
        self.p = self.b.parameter(tuple_shape(array_shape("s32"), *(array_shape(t, 4, 4) for t in types)))
        self.counter = self.b.add("get-tuple-element", self.p, index=0)
        self.state = [self.b.add("get-tuple-element", self.p, index=n + 1) for n in range(len(types))]

    def reduced(self, x: Instruction, opcode: str = "add") -> Instruction:
        body = binary_computation(opcode, x.shape.dtype)
        return self.b.add("all-reduce", x, replica_groups=GROUPS, to_apply=body)

    def program(self, *results: Instruction, zeros: bool = False) -> Module:
        b = self.b
        step = b.add("add", self.counter, b.constant(1, "s32"))
        body = b.build(b.add("tuple", step, *results))
        e = Builder("main")
        start = [e.parameter(array_shape(t, 4, 4)) for t in self.types]
        if zeros:
            start[0] = e.constant(0, self.types[0], (4, 4))
        loop = e.add(
            "while",
            e.add("tuple", e.constant(0, "s32"), *start),
            condition=self.condition,
            body=body,
            shape=body.root.shape,
        )
        parts = [e.add("get-tuple-element", loop, index=n) for n in range(len(results) + 1)]
        root = e.add("tuple", *parts)
        return make_module("m", e.build(root), mesh=MESH, num_partitions=4, partitioned=True)


def runs(module: Module) -> int:
    return sum(int(c["count"]) for c in build_report(module)["collectives"])


def after(before: Module, expected: int) -> Module:
    """The module with accumulators' reductions sunk, which must compute the same with ``expected`` reductions."""
    module = SinkReductions().run(before)
    same(before, module)
    assert runs(module) == expected
    return module


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("trips", [0, 2, 5])
def test_a_sum_is_reduced_once(trips: int, zeros: bool) -> None:
    loop = Loop("f32", "f32", trips=trips)
    acc, x = loop.state
    scaled = loop.b.add("multiply", x, x)
    before = loop.program(loop.b.add("add", loop.reduced(scaled), acc), x, zeros=zeros)
    after(before, 1 if trips else 0)


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_extrema_are_reduced_once(opcode: str) -> None:
    loop = Loop("f32", "f32")
    acc, x = loop.state
    larger = loop.b.add("add", x, x)
    after(loop.program(loop.b.add(opcode, acc, loop.reduced(x, opcode)), larger), 1)


def test_several_terms_and_accumulators() -> None:
    loop = Loop("f32", "f32", "f32")
    first, second, x = loop.state
    b = loop.b
    total = b.add("add", b.add("add", loop.reduced(x), first), loop.reduced(b.add("negate", x)))
    before = loop.program(total, b.add("add", second, loop.reduced(b.add("multiply", x, x))), x)
    after(before, 2)


def test_scattered_sums_are_sunk_while_the_state_at_most_doubles() -> None:
    def program(other: int) -> Module:
        b = Builder("body")
        shapes = (array_shape("s32"), array_shape("f32", 2, 4), array_shape("f32", other, 4))
        p = b.parameter(tuple_shape(*shapes))
        counter, acc, x = (b.add("get-tuple-element", p, index=n) for n in range(3))
        part = b.add("slice", x, slice=((0, 4, 1), (0, 4, 1)))
        attrs = {"replica_groups": GROUPS, "to_apply": binary_computation("add", "f32"), "dimensions": (0,)}
        scattered = b.add("reduce-scatter", part, shape=shapes[1], **attrs)
        step = b.add("add", counter, b.constant(1, "s32"))
        body = b.build(b.add("tuple", step, b.add("add", acc, scattered), x))
        c = Builder("condition")
        q = c.parameter(tuple_shape(*shapes))
        test = c.add("compare", c.add("get-tuple-element", q, index=0), c.constant(7, "s32"), direction="LT")
        e = Builder("main")
        start = e.add("tuple", e.constant(0, "s32"), *(e.parameter(s) for s in shapes[1:]))
        loop = e.add("while", start, condition=c.build(test), body=body, shape=body.root.shape)
        root = e.add("tuple", *(e.add("get-tuple-element", loop, index=n) for n in range(3)))
        return make_module("m", e.build(root), mesh=MESH, num_partitions=4, partitioned=True)

    after(program(4), 1)


def test_what_must_be_reduced_in_every_iteration_is() -> None:
    loop = Loop("f32", "f32")
    acc, x = loop.state
    read = loop.program(loop.b.add("add", acc, loop.reduced(x)), loop.b.add("negate", acc))
    after(read, 5)
    loop = Loop("f32", "f32")
    acc, x = loop.state
    twice = loop.b.add("add", acc, acc)
    after(loop.program(loop.b.add("add", twice, loop.reduced(x)), x), 5)
    loop = Loop("f32", "f32")
    acc, x = loop.state
    total = loop.reduced(x)
    after(loop.program(loop.b.add("add", acc, total), loop.b.add("add", total, total)), 5)
    loop = Loop("bf16", "bf16")
    acc, x = loop.state
    after(loop.program(loop.b.add("add", acc, loop.reduced(x)), x), 5)
    loop = Loop("f32", "f32")
    acc, x = loop.state
    after(loop.program(loop.b.add("maximum", acc, loop.reduced(x)), x), 5)


def test_integers_are_sunk_too() -> None:
    loop = Loop("s32", "s32")
    acc, x = loop.state
    after(loop.program(loop.b.add("add", acc, loop.reduced(x)), x), 1)


def gathered(loop: Loop, x: Instruction) -> Instruction:
    wide = loop.b.add("all-gather", x, replica_groups=GROUPS, dimensions=(0,), shape=array_shape("f32", 8, 4))
    return loop.b.add("slice", wide, slice=((2, 6, 1), (0, 4, 1)))


def test_what_never_changes_is_gathered_before_the_loop() -> None:
    loop = Loop("f32", "f32")
    changing, fixed = loop.state
    scaled = loop.b.add("multiply", fixed, fixed)
    wide = gathered(loop, loop.b.add("add", scaled, loop.b.constant(1, "f32", (4, 4))))
    before = loop.program(loop.b.add("add", changing, wide), fixed)
    module = HoistCollectives().run(before)
    same(before, module)
    assert runs(before) == 5
    assert runs(module) == 1
    assert collectives(module) == ["all-gather"]


def test_what_changes_stays_in_the_loop() -> None:
    loop = Loop("f32", "f32")
    changing, fixed = loop.state
    before = loop.program(gathered(loop, loop.b.add("add", changing, fixed)), fixed)
    assert HoistCollectives().run(before) is before


def test_gathers_of_gathers_go_together() -> None:
    loop = Loop("f32", "f32")
    changing, fixed = loop.state
    wide = gathered(loop, gathered(loop, fixed))
    before = loop.program(loop.b.add("add", changing, wide), fixed)
    module = HoistCollectives().run(before)
    same(before, module)
    assert runs(module) == 2


def two_gathers() -> Module:
    """A loop that gathers its fixed array twice, once scaled."""
    loop = Loop("f32", "f32")
    changing, fixed = loop.state
    both = loop.b.add("add", gathered(loop, fixed), gathered(loop, loop.b.add("multiply", fixed, fixed)))
    return loop.program(loop.b.add("add", changing, both), fixed)


def test_no_more_is_kept_during_a_loop_than_there_is_memory_for() -> None:
    before = two_gathers()
    peak, wide = estimate_peak(before), 8 * 4 * 4
    for kept, room in enumerate((wide - 1, wide, 2 * wide)):
        module = HoistCollectives(growth=room / peak).run(before)
        same(before, module)
        assert runs(module) == kept + 5 * (2 - kept)
        machine = load_machine("a100-dgx")
        small = replace(machine, device=replace(machine.device, memory_bytes=peak + room))
        assert print_module(HoistCollectives(small).run(before)) == print_module(module)
        assert print_module(HoistCollectives(growth=9.0, memory=peak + room).run(before)) == print_module(module)


def test_where_a_gather_of_a_gather_is_too_much_the_smaller_one_goes() -> None:
    loop = Loop("f32", "f32")
    changing, fixed = loop.state
    double = array_shape("f32", 16, 4)
    once = loop.b.add("all-gather", fixed, replica_groups=GROUPS, dimensions=(0,), shape=array_shape("f32", 8, 4))
    twice = loop.b.add("all-gather", once, replica_groups=GROUPS, dimensions=(0,), shape=double)
    part = loop.b.add("slice", twice, slice=((0, 4, 1), (0, 4, 1)))
    before = loop.program(loop.b.add("add", changing, part), fixed)
    peak = estimate_peak(before)
    assert runs(HoistCollectives(growth=double.nbytes / peak).run(before)) == 2
    assert runs(HoistCollectives(growth=double.nbytes / peak / 2).run(before)) == 1 + 5


def test_loops_in_loops() -> None:
    """The inner loop's sum leaves both loops."""
    inner = Loop("f32", "f32", trips=3)
    acc, x = inner.state
    body = inner.b.build(
        inner.b.add(
            "tuple",
            inner.b.add("add", inner.counter, inner.b.constant(1, "s32")),
            inner.b.add("add", acc, inner.reduced(x)),
            x,
        )
    )
    outer = Loop("f32", "f32", trips=4)
    acc, x = outer.state
    b = outer.b
    start = b.add("tuple", b.constant(0, "s32"), acc, x)
    loop = b.add("while", start, condition=inner.condition, body=body, shape=body.root.shape)
    before = outer.program(b.add("get-tuple-element", loop, index=1), x)
    assert runs(before) == 12
    after(before, 1)
