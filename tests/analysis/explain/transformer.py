"""An unrolled transformer of any number of layers, for the speed of explaining."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import shardc
from shardc import Mesh
from tests.analysis.explain.explain_programs import program, shape

MESH = Mesh({"data": 2, "model": 4})


def _norm(x: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def _layer(p: Any, x: Any) -> Any:
    h = _norm(x)
    q, k, v = (jnp.einsum("bsd,dhk->bshk", h, p[n]) for n in ("q", "k", "v"))
    scores = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k) / 8.0, -1)
    x = x + jnp.einsum("bhst,bthk,hkd->bsd", scores, v, p["o"])
    return x + jax.nn.gelu(_norm(x) @ p["up"]) @ p["down"]


def _loss(params: Any, x: Any, y: Any) -> Any:
    for p in params["layers"]:
        x = _layer(p, x)
    return jnp.mean((x - y) ** 2)


def _step(params: Any, x: Any, y: Any) -> Any:
    value, gradients = jax.value_and_grad(_loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def transformer(layers: int, *, down: Any = None, batch: int = 16) -> shardc.Program:
    """Tensor and data parallel; ``down`` replaces the second projection's spec."""
    d, heads, size, hidden = 128, 8, 16, 512
    one = {n: shape(d, heads, size) for n in ("q", "k", "v")}
    one |= {"o": shape(heads, size, d), "up": shape(d, hidden), "down": shape(hidden, d)}
    by_head = jax.P(None, "model", None)
    spec = {"q": by_head, "k": by_head, "v": by_head, "o": jax.P("model", None, None)}
    spec |= {"up": jax.P(None, "model"), "down": down or jax.P("model", None)}
    params, specs = {"layers": [one] * layers}, {"layers": [spec] * layers}
    x = shape(batch, 64, d)
    data = jax.P("data", None, None)
    return program(_step, (params, x, x), MESH, (specs, data, data), (specs, jax.P()))
