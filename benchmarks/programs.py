"""The programs that the benchmarks run: JAX functions with their arguments and shardings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.demo.setup import MESH, ModelConfig, example_state, example_tokens, state_specs
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.notations.partition_spec import P


@dataclass(frozen=True)
class Case:
    """``function`` maps (state, batch) to (state, loss); specs are pytrees of `P` (or prefixes)."""

    name: str
    mesh: Mesh
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    in_specs: Any
    out_specs: Any


def transformer(layers: int = 2, d_model: int = 128, batch: int = 8) -> Case:
    """The demo's step: data x tensor parallel on 2x2."""
    from shardc.demo.model import training_step

    config = ModelConfig(layers=layers, d_model=d_model, d_ff=4 * d_model, batch=batch)
    specs = state_specs(config)
    arguments = (example_state(0, config), example_tokens(0, config))
    name = f"transformer {layers}x{d_model}, data 2 x model 2"
    return Case(name, MESH, training_step(config), arguments, (specs, P("data")), (specs, P()))


def perceptron_fsdp(layers: int = 8, width: int = 256, batch: int = 64, devices: int = 4) -> Case:
    """A scan over equal layers whose weights are split over all devices (FSDP)."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        y = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]
        return jnp.mean(y * y)

    def step(weights: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return weights - 0.1 * gradient, value

    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((layers, width, width)) / np.sqrt(width)).astype(np.float32)
    x = rng.standard_normal((batch, width)).astype(np.float32)
    split = P(None, "fsdp")
    name = f"perceptron {layers}x{width} scan, fsdp {devices}"
    return Case(name, Mesh({"fsdp": devices}), step, (weights, x), (split, P("fsdp")), (split, P()))


CASES: dict[str, Callable[[], Case]] = {
    "transformer": transformer,
    "transformer-wide": lambda: transformer(d_model=512),
    "fsdp": perceptron_fsdp,
}
