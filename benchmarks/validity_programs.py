"""The programs whose steps are predicted and measured on this computer: any number of devices, by name.

Every program is a function of (state, *rest) that returns (state, value); the state is donated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from device_programs import DEVICE_CASES
from programs import Case, perceptron_fsdp

from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.notations.partition_spec import P

__all__ = ["VALIDITY"]


def _normal(seed: int, *dims: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(dims) * scale).astype(np.float32)


def _attention(n: int) -> Case:
    """Softmax attention of 8 heads, heads split."""
    heads, length, width = 8, 512, 64

    def forward(state: Any, q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(width)
        mixed = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)
        return state + mixed, jnp.sum(mixed[:, 0])

    given = [_normal(s, heads, length, width) for s in range(4)]
    split = P("heads")
    return Case(
        "attention forward, 8 heads x 512 x 64", Mesh({"heads": n}), forward, tuple(given), (split,) * 4, (split, P())
    )


def _chain(n: int) -> Case:
    """Elementwise: exponentials, a tanh and arithmetic on 4 Mi elements."""

    def step(x: Any, y: Any) -> Any:
        z = jnp.exp(-x * x) * jnp.tanh(y) + 0.5 * x
        return z, z[0, 0]

    split = P("data")
    given = (_normal(0, 2048, 2048), _normal(1, 2048, 2048))
    return Case("elementwise chain, 4 Mi elements", Mesh({"data": n}), step, given, (split, split), (split, P()))


def _statistics(n: int) -> Case:
    """Means and variances over rows and over columns, and what is normalised by them."""

    def step(x: Any, y: Any) -> Any:
        rows = (x - jnp.mean(x, axis=1, keepdims=True)) * jax.lax.rsqrt(jnp.var(x, axis=1, keepdims=True) + 1e-5)
        columns = jnp.sum(rows * y, axis=0)
        return rows, jnp.max(columns)

    split = P("data")
    given = (_normal(0, 4096, 1024), _normal(1, 4096, 1024))
    return Case("normalise rows, reduce columns, 4096 x 1024", Mesh({"data": n}), step, given, (split, split),
                (split, P()))  # fmt: skip


def _embedding(n: int) -> Case:
    """A table of embeddings, its gradient scattered, batch split."""

    def loss(table: Any, ids: Any, target: Any) -> Any:
        return jnp.mean((table[ids] - target) ** 2)

    def step(table: Any, ids: Any, target: Any) -> Any:
        value, g = jax.value_and_grad(loss)(table, ids, target)
        return table - 0.1 * g, value

    ids = np.random.default_rng(0).integers(0, 8192, 4096).astype(np.int32)
    given = (_normal(0, 8192, 128), ids, _normal(1, 4096, 128))
    return Case("embedding 8192 x 128, 4096 rows", Mesh({"data": n}), step, given, (P(), P("data"), P("data")),
                (P(), P()))  # fmt: skip


def _small(n: int) -> Case:
    """Sixty layers of 64 x 64 on a batch of 16: many small operations."""

    def step(w: Any, x: Any) -> Any:
        for layer in range(60):
            x = jnp.tanh(x @ w[layer])
        return w, jnp.sum(x)

    given = (_normal(0, 60, 64, 64, scale=1 / 8), _normal(1, 16, 64))
    return Case("60 small layers", Mesh({"data": n}), step, given, (P(), P("data")), (P(), P()))


def _stencil(n: int) -> Case:
    """Fifty sweeps of a five-point stencil over rows that are split: halos every sweep."""

    def sweep(x: Any, _: Any) -> Any:
        around = jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        return 0.2 * (around + x), None

    def step(x: Any) -> Any:
        y = jax.lax.scan(sweep, x, None, length=50)[0]
        return y, y[0, 0]

    split = P("rows")
    return Case("stencil 1024 x 1024, 50 sweeps", Mesh({"rows": n}), step, (_normal(0, 1024, 1024),), (split,),
                (split, P()))  # fmt: skip


def _reduces(n: int) -> Case:
    """Gradients of a wide linear layer with a small batch: what is reduced is larger than what is computed."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((x @ w) ** 2)

    def step(w: Any, x: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, x)
        return w - 0.1 * g, value

    given = (_normal(0, 2048, 2048, scale=1 / 45), _normal(1, 32, 2048))
    return Case("linear 2048 x 2048, batch 32, data parallel", Mesh({"data": n}), step, given, (P(), P("data")),
                (P(), P()))  # fmt: skip


def _resized(name: str) -> Callable[[int], Case]:
    """A case of several devices on another number of them."""

    def made(n: int) -> Case:
        case = DEVICE_CASES[f"{name}-4"]()
        shape = dict(case.mesh.shape)
        split = [a for a, size in shape.items() if size > 1]
        if len(split) == 1:
            shape[split[0]] = n
        else:
            shape[split[0]], shape[split[1]] = (2, n // 2) if n > 1 else (1, 1)
        return Case(case.name, Mesh(shape), case.function, case.arguments, case.in_specs, case.out_specs)

    return made


#: By name: the case on so many devices.
VALIDITY: dict[str, Callable[[int], Case]] = {
    "mlp-data": _resized("mlp-data"),
    "mlp-tensor": _resized("mlp-tensor"),
    "mlp-mixed": _resized("mlp-mixed"),
    "transformer-data": _resized("transformer-data"),
    "transformer-tensor": _resized("transformer-tensor"),
    "transformer-small": _resized("transformer-small"),
    "convnet": _resized("convnet-data"),
    "fsdp-scan": lambda n: perceptron_fsdp(devices=n),
    "attention": _attention,
    "chain": _chain,
    "statistics": _statistics,
    "embedding": _embedding,
    "small": _small,
    "stencil": _stencil,
    "all-reduces": _reduces,
}
