"""Partitioning does not depend on the number of devices: neither what it does nor what it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from growing_programs import SHAPES
from partition_support import layout

from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.partitioner.partition import partition
from shardc.partitioner.reshard.rechunk import sent_elements
from shardc.partitioner.reshard.windows import (
    SourceInterval,
    TargetIntervals,
    operands_to_gather,
    plan_exchange,
    plan_own,
)
from shardc.sharding.notations.tile_assignments import convert_to_axes
from shardc.sharding.propagate import propagate

N = 1 << 15


def layers(mesh: Mesh, count: int = 6) -> Module:
    """Layers of a network, each with a sum over the split features."""
    b = Builder("main")
    x = b.parameter(array_shape("f32", N, N), sharding=layout(mesh, "x", None))
    for _ in range(count):
        up = b.parameter(array_shape("f32", N, N), sharding=layout(mesh, None, "y"))
        down = b.parameter(array_shape("f32", N, N), sharding=layout(mesh, "y", None))
        h = b.add("tanh", b.add("dot", x, up, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)))
        x = b.add("add", x, b.add("dot", h, down, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)))
    zero = b.constant(0.0, "f32")
    b.add("reduce", x, zero, dimensions=(0, 1), to_apply=binary_computation("add", "f32"))
    return propagate(make_module("layers", b.build(), mesh=mesh)).module


def calls(action: Callable[[], Any], *events: str) -> int:
    """How many Python functions ``action`` calls (or other ``events``): a time that no other process disturbs."""
    counts = events or ("call",)
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in counts

    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(autouse=True)
def _imported() -> None:
    partition(layers(Mesh({"x": 2, "y": 2})))


def test_the_number_of_devices_costs_nothing() -> None:
    few, many = layers(Mesh({"x": 2, "y": 4})), layers(Mesh({"x": 4096, "y": 4}))
    assert calls(lambda: partition(many)) <= 1.1 * calls(lambda: partition(few))
    written = [[i.opcode for i in partition(m).instructions()] for m in (few, many)]
    assert written[0] == written[1]
    assert len(print_module(partition(many))) <= 1.2 * len(print_module(partition(few)))


def test_the_length_of_the_program_costs_in_proportion() -> None:
    mesh = Mesh({"x": 4096, "y": 4})
    short, long = layers(mesh, 8), layers(mesh, 64)
    assert calls(lambda: partition(long)) <= 9 * calls(lambda: partition(short))


def whole(text: str) -> Module:
    return propagate(convert_to_axes(read_hlo(text))).module


@pytest.mark.parametrize("shape", ["deep, one weight", "wide", "a loop with many readers"])
def test_no_shape_of_program_costs_more_than_in_proportion(shape: str) -> None:
    short, long = (whole(SHAPES[shape](n)) for n in (200, 400))
    assert calls(lambda: partition(long)) <= 2.2 * calls(lambda: partition(short))


@pytest.mark.full
def test_many_readers_cost_no_more_than_in_proportion() -> None:
    short, long = (whole(SHAPES["many readers"](n)) for n in (400, 800))
    assert calls(lambda: partition(long)) <= 2.2 * calls(lambda: partition(short))


@pytest.mark.parametrize("shape", ["wide, concatenated", "wide, one call"])
def test_an_operation_of_many_values_costs_no_more_than_in_proportion(shape: str) -> None:
    """It belongs to one region of each round, not to all regions around it."""
    short, long = (whole(SHAPES[shape](n)) for n in (540, 1080))
    assert calls(lambda: partition(long)) <= 2.2 * calls(lambda: partition(short))


def test_a_window_over_many_operands_costs_no_more_than_in_proportion() -> None:
    def work(count: int) -> int:
        sources = tuple(SourceInterval(n, 2, True, 0, 4 * n, 4) for n in range(count))
        target = TargetIntervals((0, 2 * count), (2 * count, 2 * count), 2 * count)
        return calls(lambda: (operands_to_gather(sources, target), plan_exchange(sources, target)), "call", "c_call")

    assert work(800) <= 2.2 * work(400)


def carried(depth: int, width: int = 8) -> Module:
    """Loops within loops that hand on a state of many elements, as solvers with step control have them."""
    state = f"(s32[], {', '.join(['f32[8]'] * width)})"
    inner, text = "", ""
    names = ", ".join(f"%n_{k}" for k in range(width))
    for d in range(depth):
        given = "".join(f" %e_{k} = f32[8] get-tuple-element(%p), index={k + 1}\n" for k in range(width))
        made = "".join(f" %n_{k} = f32[8] add(%m_{k}, %m_{(k + 1) % width})\n" for k in range(width))
        passed = inner or "".join(f" %m_{k} = f32[8] negate(%e_{k})\n" for k in range(width))
        text += f"""%cond_{d} {{ %p = {state} parameter(0)\n %i = s32[] get-tuple-element(%p), index=0
 %n = s32[] constant(3)\n ROOT %c = pred[] compare(%i, %n), direction=LT }}\n
%body_{d} {{ %p = {state} parameter(0)\n %i = s32[] get-tuple-element(%p), index=0
 %one = s32[] constant(1)\n %j = s32[] add(%i, %one)
{given}{passed}{made} ROOT %q = {state} tuple(%j, {names}) }}\n\n"""
        starts = ", ".join(f"%e_{k}" for k in range(width))
        inner = f" %z = s32[] constant(0)\n %a = {state} tuple(%z, {starts})\n"
        inner += f" %l = {state} while(%a), condition=%cond_{d}, body=%body_{d}\n"
        inner += "".join(f" %m_{k} = f32[8] get-tuple-element(%l), index={k + 1}\n" for k in range(width))
    given = "".join(f" %e_{k} = f32[8] parameter({k}), sharding={{devices=[4]<=[4]}}\n" for k in range(width))
    results = f"({', '.join(['f32[8]'] * width)}) tuple({', '.join(f'%m_{k}' for k in range(width))})"
    return whole(
        f"HloModule carried, num_partitions=4\n\n{text}ENTRY %main {{\n{given}{inner} ROOT %r = {results}\n}}\n"
    )


def test_a_computation_is_asked_once_how_partial_values_spread() -> None:
    """Not once for each element of the state, in each loop around it."""
    assert calls(lambda: partition(carried(6))) <= 2.8 * calls(lambda: partition(carried(3)))


def test_exchanges_cost_no_more_than_in_proportion_to_devices() -> None:
    """Few rows over many devices: a roll, what all devices read, what each finds at home, and other chunks."""

    def work(devices: int) -> int:
        rows = devices // 4 - 3
        whole = SourceInterval(0, 1, True, 0, 0, rows)
        roll = (SourceInterval(0, 1, True, 5, 0, rows - 5), SourceInterval(0, 1, True, 0, rows - 5, 5))
        spread = TargetIntervals(tuple(range(devices)), tuple(int(k < rows) for k in range(devices)), 1)
        same = TargetIntervals((0,) * devices, (rows,) * devices, rows)

        def act() -> None:
            assert operands_to_gather((whole,), same) == {0}
            assert not operands_to_gather(roll, spread)
            plan_exchange(roll, spread)
            assert plan_own(whole, same).rounds[0].size == 1
            sent_elements(rows, devices, 1, 4)

        return calls(act, "call", "c_call")

    assert work(4096) <= 4.4 * work(1024)
