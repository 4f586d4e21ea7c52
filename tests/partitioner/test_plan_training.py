"""Weights and batch annotated, nothing else: a plan finds what a constraint on the layers' input says by hand."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.hlo.ir.mesh import Mesh

jax = pytest.importorskip("jax")

MESH = Mesh({"data": 16, "model": 8})
WIDE, INNER, LAYERS, WORDS, BATCH, LENGTH = 4096, 14336, 20, 32768, 256, 2048


def training_step(constrained: bool) -> Any:
    """A language model's gradients, a scan over checkpointed layers; weights and batch are split over both axes."""
    from jax.sharding import NamedSharding, PartitionSpec

    import shardc

    mesh, both, jnp = MESH.to_jax(), ("data", "model"), jax.numpy

    def array(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.bfloat16) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    def layer(h: Any, w: Any) -> Any:
        if constrained:
            h = jax.lax.with_sharding_constraint(h, NamedSharding(mesh, PartitionSpec(both)))
        y = h / jnp.sqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-5)
        return h + jax.nn.silu(y @ w[0]) @ w[1], None

    def loss(p: Any, x: Any) -> Any:
        e, w = p
        logits = (jax.lax.scan(jax.checkpoint(layer), e[x], w)[0] @ e.T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), x[..., None], -1))

    w = (array((LAYERS, WIDE, INNER), None, both), array((LAYERS, INNER, WIDE), None, both))
    p = (array((WORDS, WIDE), both), w)
    x = array((BATCH, LENGTH), both, dtype=jnp.int32)
    step = jax.jit(jax.grad(loss), out_shardings=jax.tree.map(lambda a: a.sharding, p))
    return shardc.from_jax(step, p, x).propagate()


def test_fully_sharded_weights_need_no_constraint() -> None:
    by_hand = training_step(constrained=True).partition(machine="h100-dgx").simulate("h100-dgx")
    propagated = training_step(constrained=False)
    before = propagated.partition(machine="h100-dgx", plan="propagated").simulate("h100-dgx", ignore_memory=True)
    memory = 1.01 * by_hand.peak_bytes
    planned = propagated.partition(machine="h100-dgx", plan="global", memory=memory)
    found = planned.simulate("h100-dgx")
    assert before.step_seconds > 1.2 * by_hand.step_seconds
    assert found.step_seconds <= 1.001 * by_hand.step_seconds
    assert found.peak_bytes <= memory
    by_default = propagated.partition(machine="h100-dgx").simulate("h100-dgx")
    assert by_default.step_seconds <= 1.01 * by_hand.step_seconds
    again = propagated.partition(machine="h100-dgx", plan="global", memory=memory)
    assert again.as_text() == planned.as_text()
