"""Loops that fetch for the next iteration and reduce for the last: the same numbers, bytes and trips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_optimise import same
from test_xla import through_xla

from shardc.compiler.lower.lowered import AwaitStep, Collective, KernelStep, WhileStep
from shardc.compiler.lower.pipeline import PASSES, lower
from shardc.compiler.lower.schedule.order_transfers import model_timeline
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.partitioner.equivalence import agree
from shardc.partitioner.optimise.loops.delay_reductions import DelayReductions
from shardc.partitioner.optimise.loops.prefetch_gathers import PrefetchGathers
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report
from shardc.sharding.propagate import propagate

MESH = Mesh({"x": 4})
GROUPS = AxisGroups(MESH, (AxisRef("x"),))


class Layers:
    """A loop over layers whose weights, ``wide`` rows in all, lie in parts over four devices.

    State: counter, activations (2, wide), weights (layers, wide / 4, wide), gradients of the same shape.
    """

    def __init__(self, *, first: int = 0, step: int = 1, last: int = 5, direction: str = "LT", wide: int = 8) -> None:
        self.first, self.step, self.last, self.direction, self.wide = first, step, last, direction, wide
        rows = wide // 4
        self.types = (
            array_shape("s32"),
            array_shape("f32", 2, wide),
            array_shape("f32", 6, rows, wide),
            array_shape("f32", 6, rows, wide),
        )
        self.b = Builder("body")
        p = self.b.parameter(tuple_shape(*self.types))
        self.counter, self.x, self.w, self.g = (self.b.add("get-tuple-element", p, index=n) for n in range(4))

    def layer(self) -> Instruction:
        """This layer's part of the weights."""
        zero = self.b.constant(0, "s32")
        sizes = (1, *self.types[2].dims[1:])
        part = self.b.add("dynamic-slice", self.w, self.counter, zero, zero, dynamic_slice_sizes=sizes)
        return self.b.add("reshape", part, shape=array_shape("f32", *sizes[1:]))

    def gathered(self, part: Instruction) -> Instruction:
        shape = array_shape("f32", self.wide, self.wide)
        return self.b.add("all-gather", part, replica_groups=GROUPS, dimensions=(0,), shape=shape)

    def times(self, whole: Instruction) -> Instruction:
        """Activations through a layer, kept small whole numbers."""
        y = self.b.add("dot", self.x, whole, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
        return self.b.add("remainder", y, self.b.constant(5, "f32", y.shape.dims))

    def scattered(self, y: Instruction) -> Instruction:
        """Gradients with this layer's: a product, added up over devices, in parts."""
        b, rows = self.b, self.wide // 4
        product = b.add("dot", self.x, y, lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
        attrs = {"replica_groups": GROUPS, "dimensions": (0,), "to_apply": binary_computation("add", "f32")}
        part = b.add("reduce-scatter", product, shape=array_shape("f32", rows, self.wide), **attrs)
        row = b.add("reshape", part, shape=array_shape("f32", 1, rows, self.wide))
        zero = b.constant(0, "s32")
        return b.add("dynamic-update-slice", self.g, row, self.counter, zero, zero)

    def program(self, x: Instruction, g: Instruction) -> Module:
        b = self.b
        body = b.build(b.add("tuple", b.add("add", self.counter, b.constant(self.step, "s32")), x, self.w, g))
        c = Builder("condition")
        q = c.parameter(tuple_shape(*self.types))
        now = c.add("get-tuple-element", q, index=0)
        condition = c.build(c.add("compare", now, c.constant(self.last, "s32"), direction=self.direction))
        e = Builder("main")
        start = e.add("tuple", e.constant(self.first, "s32"), *(e.parameter(t) for t in self.types[1:]))
        loop = e.add("while", start, condition=condition, body=body, shape=body.root.shape)
        root = e.add("tuple", *(e.add("get-tuple-element", loop, index=n) for n in range(4)))
        return make_module("m", e.build(root), mesh=MESH, num_partitions=4, partitioned=True)


def forward(**given: object) -> Module:
    layers = Layers(**given)  # type: ignore[arg-type]
    return layers.program(layers.times(layers.gathered(layers.layer())), layers.g)


def backward(**given: object) -> Module:
    layers = Layers(**given)  # type: ignore[arg-type]
    y = layers.times(layers.gathered(layers.layer()))
    return layers.program(y, layers.scattered(y))


def wire(module: Module) -> float:
    report = build_report(module)
    assert not any(c["unknown_trip_count"] for c in report["collectives"])
    return float(report["wire_bytes"])


def body_of(module: Module) -> Computation:
    (loop,) = [i for i in module.entry if i.opcode == "while"]
    return dict(called_computations(loop))["body"]


def waits(i: Instruction, opcode: str, seen: set[Instruction] | None = None) -> bool:
    """Does ``i`` need an instruction of this opcode?"""
    seen = set() if seen is None else seen
    seen.add(i)
    return any(o.opcode == opcode or waits(o, opcode, seen) for o in i.operands if o not in seen)


COUNTS = [
    {"last": 2},
    {"first": 1, "last": 6},
    {"last": 6, "step": 2},
    {"last": 4, "direction": "LE"},
    {"last": 4, "step": 2, "direction": "NE"},
    {"first": 5, "step": -1, "last": 0, "direction": "GE"},
    {"first": 5, "step": -2, "last": 0, "direction": "GT"},
]


@pytest.mark.parametrize("count", COUNTS, ids=str)
def test_gathers_for_the_next_iteration(count: dict[str, object]) -> None:
    before = forward(**count)
    after = PrefetchGathers("always").run(before)
    same(before, after)
    assert wire(after) == wire(before)
    body = body_of(after)
    gathers = [i for i in body if i.opcode == "all-gather"]
    products = [i for i in body if i.opcode == "dot"]
    assert len(gathers) == len(products) == 1
    assert not waits(products[0], "all-gather")
    assert not waits(gathers[0], "dot")


@pytest.mark.parametrize("count", COUNTS, ids=str)
def test_reductions_of_the_last_iteration(count: dict[str, object]) -> None:
    before = backward(**count)
    after = DelayReductions("always").run(before)
    same(before, after)
    assert wire(after) == wire(before)
    body = body_of(after)
    (reduced,) = [i for i in body if i.opcode == "reduce-scatter"]
    assert not waits(reduced, "dot")
    assert not any(waits(i, "reduce-scatter") for i in body if i.opcode == "dot")


def test_both_ways_at_once() -> None:
    before = backward()
    after = DelayReductions("always").run(PrefetchGathers("always").run(before))
    same(before, after)
    assert wire(after) == wire(before)
    body = body_of(after)
    assert not any(waits(i, "dot") for i in body if i.opcode in ("all-gather", "reduce-scatter"))
    again = PrefetchGathers("always").run(after)
    assert [i.opcode for i in body_of(again)] == [i.opcode for i in body]


def test_gathers_of_gathers_and_what_is_done_to_them() -> None:
    """A chain of collectives goes along; conversions behind it stay with their readers."""
    layers = Layers(wide=16)
    part = layers.layer()
    half = AxisGroups(MESH, (AxisRef("x", 2, 2),))
    two = layers.b.add("all-gather", part, replica_groups=half, dimensions=(0,), shape=array_shape("f32", 8, 16))
    rest = AxisGroups(MESH, (AxisRef("x", 1, 2),))
    four = layers.b.add("all-gather", two, replica_groups=rest, dimensions=(0,), shape=array_shape("f32", 16, 16))
    before = layers.program(layers.times(layers.b.add("negate", four)), layers.g)
    after = PrefetchGathers("always").run(before)
    same(before, after)
    assert wire(after) == wire(before)
    assert not any(waits(i, "all-gather") for i in body_of(after) if i.opcode == "dot")


def test_what_an_iteration_has_to_wait_for_stays() -> None:
    layers = Layers()
    gathered = layers.gathered(layers.b.add("slice", layers.x, slice=((0, 2, 1), (0, 8, 1))))
    chained = layers.program(layers.times(gathered), layers.g)
    assert PrefetchGathers("always").run(chained) is chained
    layers = Layers()
    grown = layers.scattered(layers.times(layers.gathered(layers.layer())))
    read = layers.b.add(
        "reduce", grown, layers.b.constant(0, "f32"), dimensions=(0, 1), to_apply=binary_computation("add", "f32")
    )
    spread = layers.b.add("broadcast", read, shape=array_shape("f32", 2, 8), dimensions=(1,))
    needed = layers.program(spread, grown)
    assert DelayReductions("always").run(needed) is needed


@pytest.mark.parametrize("count", [{"last": 1}, {"last": 0}, {"step": 0}])
def test_short_and_uncounted_loops_stay(count: dict[str, object]) -> None:
    before = backward(**count)
    assert PrefetchGathers("always").run(before) is before
    assert DelayReductions("always").run(before) is before


def test_modelled_time_and_memory_decide() -> None:
    large, small = backward(wide=8192), backward(wide=8)
    machine = load_machine("h100-dgx")
    full: Machine = replace(machine, device=replace(machine.device, memory_bytes=1 << 20))
    for kind in (PrefetchGathers, DelayReductions):
        assert kind("auto", machine).run(large) is not large
        assert kind("auto", full).run(large) is large
        assert kind("auto").run(large) is large
        assert kind("never", machine).run(large) is large
        assert kind("auto", machine).run(small) is small


def test_a_training_step_over_layers(tmp_path: Path) -> None:
    """Gradients of a scan over split weights, pipelined and windowed: XLA and our evaluator agree on it."""
    jax = pytest.importorskip("jax")
    import shardc

    def loss(w: Any, x: Any) -> Any:
        def layer(h: Any, one: Any) -> tuple[Any, None]:
            return jax.numpy.tanh(h @ one), None

        return (jax.lax.scan(layer, x, w)[0] ** 2).sum()

    rng = np.random.default_rng(0)
    w = (rng.standard_normal((4, 16, 16)) / 4).astype(np.float32)
    x = rng.standard_normal((8, 16)).astype(np.float32)
    given = shardc.from_jax(jax.jit(jax.value_and_grad(loss)), w, x)
    mesh = {"w": shardc.P(None, "x", None), "x": shardc.P("x", None)}
    module = propagate(given.annotate(mesh, mesh=Mesh({"x": 4})).module).module
    plain = partition(module)
    local = partition(module, options=PartitionOptions("always", "always"))
    assert {i.opcode for i in local.instructions()} >= {"collective-permute", "while"}
    assert wire(local) <= wire(plain)
    got = through_xla({"step": (local, [w, x])}, tmp_path)["step"]
    reference = evaluate(module, [w, x], float64=True)
    for g, want, r in zip(got, evaluate(module, [w, x]), reference, strict=True):
        assert agree(g, want, r)


def test_what_is_pipelined_is_hidden() -> None:
    """Lowered for a machine that overlaps, the gather of the next layer and the sum of the last one travel while this
    layer is computed; without pipelining there is nothing that they could go on beside."""
    machine = load_machine("h100-dgx")
    machine = replace(machine, levels=tuple(replace(n, bandwidth=2e12, latency=1e-6) for n in machine.levels))
    plain = backward(wide=4096)
    piped = DelayReductions("always", machine).run(PrefetchGathers("always", machine).run(plain))
    overlap = Overlap(machine, transfers=1, memory=4.0)
    passes = tuple(replace(p, overlap=overlap) if hasattr(p, "overlap") else p for p in PASSES)
    lowered = lower(piped, passes=passes)
    (loop,) = (s for s in lowered.steps if isinstance(s, WhileStep))
    begun: dict[Collective, int] = {}
    kernels = 0
    for step in loop.body:
        if isinstance(step, Collective):
            begun[step] = kernels
        elif isinstance(step, AwaitStep):
            assert begun.pop(step.started) < kernels
        elif isinstance(step, KernelStep):
            kernels += 1
    assert not begun and sum(isinstance(s, AwaitStep) for s in loop.body) == 2
    before, after = (model_timeline(lower(m, passes=passes).module, overlap).seconds for m in (plain, piped))
    assert after < 0.9 * before
