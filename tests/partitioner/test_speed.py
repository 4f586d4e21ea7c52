"""Partitioning does not depend on the number of devices: neither what it does nor what it writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from partition_support import layout

from shardc.hlo.build import Builder, binary_computation, make_module
from shardc.hlo.ir import Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.types import array_shape
from shardc.partitioner.partition import partition
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


def calls(action: Callable[[], Any]) -> int:
    """How many Python functions ``action`` calls: a time that no other process disturbs."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

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
    assert len(str(partition(many))) <= 1.2 * len(str(partition(few)))


def test_the_length_of_the_program_costs_in_proportion() -> None:
    mesh = Mesh({"x": 4096, "y": 4})
    short, long = layers(mesh, 8), layers(mesh, 64)
    assert calls(lambda: partition(long)) <= 9 * calls(lambda: partition(short))
