"""Layers under scan with rematerialisation, parameters split over ``fsdp`` and layers over ``tensor``: what travels per
iteration, by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from partition_support import scatter_poisoned

from shardc.costs.machines.machine import load_machine
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.mesh import Mesh
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.partition import partition
from shardc.partitioner.report import build_report
from shardc.sharding.propagate import propagate

jax = pytest.importorskip("jax")

LAYERS, WIDE, INNER, BATCH = 6, 32, 64, 1024
MESH = Mesh({"fsdp": 4, "tensor": 2})
#: Bytes of a gathered weight on a device, and of its part.
WEIGHT = WIDE * INNER * 4 // 2
PART = WEIGHT // 4


def training_module(parts: int = 1) -> Any:
    """Gradients of a scan over checkpointed layers of two products, added up over ``parts`` of the batch."""
    from jax.sharding import NamedSharding, PartitionSpec

    from shardc.frontends.jax.frontend import module_from_jax

    mesh = MESH.to_jax()

    def array(shape: tuple[int, ...], *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    def layer(x: Any, w: Any) -> Any:
        return x + jax.numpy.tanh(x @ w[0]) @ w[1], None

    def loss(w: Any, x: Any) -> Any:
        return (jax.lax.scan(jax.checkpoint(layer), x, w)[0] ** 2).sum()

    w = (
        array((LAYERS, WIDE, INNER), None, "fsdp", "tensor"),
        array((LAYERS, INNER, WIDE), None, "tensor", "fsdp"),
    )
    x = array((BATCH, WIDE), "fsdp")

    def gradients(w: Any, x: Any) -> Any:
        if parts == 1:
            return jax.grad(loss)(w, x)
        cut = x.reshape(-1, parts, WIDE).swapaxes(0, 1)
        none = jax.tree.map(jax.numpy.zeros_like, w)
        return jax.lax.scan(lambda t, x: (jax.tree.map(jax.numpy.add, t, jax.grad(loss)(w, x)), None), none, cut)[0]

    step = jax.jit(gradients, out_shardings=tuple(a.sharding for a in w))
    return propagate(module_from_jax(step, w, x).module).module


def travelling(report: dict[str, Any]) -> Counter[tuple[str, str, int]]:
    """Executions by kind, axes and bytes of the local result."""
    found: Counter[tuple[str, str, int]] = Counter()
    for c in report["collectives"]:
        found[c["op"], "+".join(c["axes"]), c["payload_bytes"]] += c["count"]
    return found


@pytest.mark.parametrize("machine", ["", "tpu-v5p:8", "h100-dgx:8"])
def test_weights_are_gathered_and_gradients_reduced_layer_by_layer(machine: str) -> None:
    """Both weights are gathered going forward and, the layer computed again, going back; each gradient is scattered;
    activations are reduced over ``tensor`` twice per layer. Nothing as large as the stack of all layers moves."""
    module = training_module()
    local = partition(module, machine=load_machine(machine) if machine else None)
    found = travelling(build_report(local))
    activation = BATCH // 4 * WIDE * 4
    assert found["all-gather", "fsdp", WEIGHT] == 4 * LAYERS
    assert found["reduce-scatter", "fsdp", PART] == 2 * LAYERS
    assert found["all-reduce", "tensor", activation] == 2 * LAYERS
    assert set(found) == {
        ("all-gather", "fsdp", WEIGHT),
        ("reduce-scatter", "fsdp", PART),
        ("all-reduce", "tensor", activation),
    }


def test_weights_read_by_every_part_of_a_batch() -> None:
    """Held for all parts they travel less, where a device has room for them; else they are gathered layer by layer."""
    machine, parts = load_machine("tpu-v5p:8"), 4
    module = training_module(parts)
    small = replace(machine, device=replace(machine.device, memory_bytes=1 << 16))
    held, read = (build_report(partition(module, machine=m)) for m in (machine, small))
    gathers = {k: n for k, n in travelling(read).items() if k[0] == "all-gather"}
    assert gathers == {("all-gather", "fsdp", WEIGHT): 4 * LAYERS * parts}
    assert held["wire_bytes"] < read["wire_bytes"]


def test_what_is_read_more_often_than_there_are_pieces_is_gathered_once() -> None:
    """Every iteration needs all of the weight: that is worth holding it."""
    from jax.sharding import NamedSharding, PartitionSpec

    from shardc.frontends.jax.frontend import module_from_jax

    mesh = MESH.to_jax()
    w = jax.ShapeDtypeStruct((WIDE, WIDE), np.float32, sharding=NamedSharding(mesh, PartitionSpec("fsdp")))
    x = jax.ShapeDtypeStruct((BATCH, WIDE), np.float32, sharding=NamedSharding(mesh, PartitionSpec("fsdp")))
    steps = jax.jit(lambda w, x: jax.lax.fori_loop(0, LAYERS, lambda i, x: jax.numpy.tanh(x @ w), x))
    local = partition(propagate(module_from_jax(steps, w, x).module).module)
    assert travelling(build_report(local)) == {("all-gather", "fsdp", WIDE * WIDE * 4): 1}


def test_numbers_stay_with_a_machine() -> None:
    module = training_module()
    rng = np.random.default_rng(0)
    args = [(rng.standard_normal(p.shape.dims) / 4).astype(np.float32) for p in module.parameters]
    local = partition(module, machine=load_machine("tpu-v5p:8"))
    got = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
    reference = evaluate(module, args, float64=True)
    for g, want, r in zip(got, evaluate(module, args), reference, strict=True):
        assert agree(g, want, r)
