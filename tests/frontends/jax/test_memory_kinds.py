"""Memory kinds in JAX programs: from `jax.device_put` and checkpoint policies to what runs and what is simulated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as JaxP

import shardc
from shardc import Mesh, P
from shardc.compiler.lower.described import lower_for
from shardc.compiler.lower.lowered import memory_analysis
from shardc.costs.machines.machine import load_machine, machine_file
from shardc.frontends.load import load_program
from shardc.hlo.ir.host_memory.memory_kinds import is_host
from shardc.hlo.text.printer import print_module
from shardc.partitioner.program import PartitionedProgram
from tests.launcher.test_job import mpiexec

LAYERS, ROWS, WIDTH = 24, 16384, 256
#: Elements of the optimiser's state: as many bytes on each of four devices.
SIZE = 1 << 20
#: Bytes of one activation on each of four devices.
ACTIVATION = 4 * ROWS // 4 * WIDTH


def gradient(*, offload: bool, scan: bool) -> Callable[..., Any]:
    """Of a chain of layers, whose inputs are kept for the backward pass: on the device, or on the host."""
    policies = jax.checkpoint_policies
    policy = policies.save_only_these_names("x")
    if offload:
        policy = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["x"], offload_src="device",
            offload_dst="pinned_host",
        )  # fmt: skip

    @partial(jax.checkpoint, policy=policy)
    def layer(x: Any, w: Any) -> Any:
        return jnp.sin(jnp.tanh(checkpoint_name(x, "x") @ w))

    def loss(ws: Any, x: Any) -> Any:
        if scan:
            x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)
        else:
            for n in range(ws.shape[0]):
                x = layer(x, ws[n])
        return jnp.sum(x * x)

    return jax.grad(loss)


def partitioned(*, offload: bool, scan: bool, layers: int = LAYERS, rows: int = ROWS) -> PartitionedProgram:
    ws, x = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((layers, WIDTH, WIDTH), (rows, WIDTH)))
    program = shardc.from_jax(jax.jit(gradient(offload=offload, scan=scan)), ws, x)
    return program.annotate({"x": P("d")}, mesh=Mesh({"d": 4})).propagate().partition()


@pytest.mark.parametrize("scan", [False, True], ids=["unrolled", "scan"])
def test_offloaded_activations_leave_the_device(scan: bool) -> None:
    """24 layers with activations of 4 MiB: the peak falls by what the host then has."""
    kept, offloaded = (partitioned(offload=o, scan=scan) for o in (False, True))
    before, after = (p.simulate("h100-dgx") for p in (kept, offloaded))
    assert before.peak_bytes > LAYERS * ACTIVATION
    assert before.peak_bytes - after.peak_bytes >= 90_000_000
    assert after.host_bytes >= (LAYERS - 1) * ACTIVATION > before.host_bytes == 0
    report = offloaded.report()
    assert report["host_moves"] == {"to_host": LAYERS * ACTIVATION, "to_device": LAYERS * ACTIVATION}
    assert report["host_bytes"] >= LAYERS * ACTIVATION
    assert report["peak_bytes"] < kept.report()["peak_bytes"] - 90_000_000
    assert after.link_bytes["pcie from host"] == LAYERS * ACTIVATION
    assert "host memory" in str(after)
    assert after.overlapped_seconds > 0


@pytest.mark.parametrize("scan", [False, True], ids=["unrolled", "scan"])
def test_results_are_those_of_jax(scan: bool) -> None:
    rng = np.random.default_rng(0)
    ws = (rng.standard_normal((3, WIDTH, WIDTH)) / 16).astype(np.float32)
    x = rng.standard_normal((64, WIDTH)).astype(np.float32)
    compiled = partitioned(offload=True, scan=scan, layers=3, rows=64).compile()
    assert compiled.executable.memory["host_bytes"] > 0
    wanted = np.asarray(jax.jit(gradient(offload=False, scan=scan))(ws, x))
    np.testing.assert_allclose(np.asarray(compiled(ws, x)), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_the_partitioned_text_keeps_memory_kinds() -> None:
    """In XLA's spelling, and the same when it is read again."""
    program = partitioned(offload=True, scan=True, layers=3, rows=64)
    text = program.as_text()
    assert text.count('_xla_buffer_placement="pinned_host"') == 1
    assert text.count('_xla_buffer_placement="device"') == 1
    module = load_program(text.encode(), "").module
    assert print_module(module) == text
    lowered = lower_for(module, load_machine("h100-dgx"))
    assert memory_analysis(lowered)["host_bytes"] >= 3 * 16 * WIDTH * 4


def step(state: Any, gradient: Any) -> tuple[Any, Any]:
    """An optimiser whose state lives on the host."""
    mesh = jax.sharding.get_abstract_mesh()
    here, there = (NamedSharding(mesh, JaxP("d"), memory_kind=k) for k in ("device", "pinned_host"))
    state = 0.9 * jax.device_put(state, here) + gradient
    return jax.device_put(state, there), state * 0.1


def optimiser() -> shardc.Program:
    """`step` over four devices, for a state of ``SIZE`` elements that is donated."""
    mesh = AbstractMesh((4,), ("d",))
    there = NamedSharding(mesh, JaxP("d"), memory_kind="pinned_host")
    state = jax.ShapeDtypeStruct((SIZE,), jnp.float32, sharding=there)
    grads = jax.ShapeDtypeStruct((SIZE,), jnp.float32, sharding=NamedSharding(mesh, JaxP("d")))
    with jax.sharding.use_abstract_mesh(mesh):
        return shardc.from_jax(jax.jit(step, donate_argnums=0), state, grads)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_state_on_the_host_of_each_rank(ranks: int, repository: Path) -> None:
    worker = sys.executable, "-m", "tests.frontends.jax.host_memory_worker"
    done = mpiexec(ranks, *worker, cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{4 // ranks} shards of {SIZE} bytes\n"


def test_state_of_an_optimiser_stays_on_the_host() -> None:
    """As argument and as result, donated: none of it counts for the device."""
    program = optimiser()
    assert [is_host(p.shape) for p in program.module.parameters] == [True, False]
    made = program.propagate().partition()
    assert "f32[262144]{0:S(5)}" in made.as_text().splitlines()[0]
    simulation = made.simulate("h100-dgx")
    assert simulation.host_bytes == 1 << 20
    assert simulation.peak_bytes < 4 << 20
    rng = np.random.default_rng(1)
    x, g = (rng.standard_normal(SIZE).astype(np.float32) for _ in range(2))
    new, update = made.compile()(x.copy(), g)
    np.testing.assert_allclose(np.asarray(new), np.float32(0.9) * x + g, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(update), (np.float32(0.9) * x + g) * np.float32(0.1), rtol=1e-6, atol=1e-6)


def test_an_accelerator_without_a_host_link_is_refused(tmp_path: Path) -> None:
    text = machine_file("h100-dgx")[0].read_text(encoding="utf-8")
    begin, end = text.index("[host]"), text.index("[[levels]]")
    file = tmp_path / "bare.toml"
    file.write_text(text[:begin] + text[end:], encoding="utf-8")
    with pytest.raises(shardc.ShardcError, match="no link to a host"):
        partitioned(offload=True, scan=False, layers=3, rows=64).simulate(str(file))
