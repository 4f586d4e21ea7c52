"""The demo's JAX program: one training step of a small transformer language model.

Plain JAX, nothing of shardc inside: causal attention, layer norm, a gelu MLP, softmax cross-entropy and Adam. The
shardings of arguments and results are given from outside (see ``setup.py``); two constraints say how activations lie.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from shardc.demo.setup import ModelConfig

__all__ = ["training_step"]


def layer_norm(x: Any, gain: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain


def attention(x: Any, p: Any) -> Any:
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, p[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bshk,bthk->bhst", q, k) * q.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), axis=-1)
    values = jnp.einsum("bhst,bthk->bshk", weights, v)
    return jnp.einsum("bshk,hkd->bsd", values, p["wo"])


def mlp(x: Any, p: Any) -> Any:
    return jax.nn.gelu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def by_batch(x: Any) -> Any:
    """Activations between blocks: split by batch over ``data``, whole otherwise."""
    return jax.lax.with_sharding_constraint(x, PartitionSpec("data", None, None))


def loss_of(params: Any, tokens: Any) -> Any:
    """Mean cross-entropy of predicting each next token."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = by_batch(params["embed"][inputs] + params["position"])
    for layer in params["layers"]:
        x = x + attention(layer_norm(x, layer["attention_norm"]), layer)
        x = by_batch(x + mlp(layer_norm(x, layer["mlp_norm"]), layer))
    logits = layer_norm(x, params["final_norm"]) @ params["embed"].T
    chosen = jnp.sum(logits * jax.nn.one_hot(targets, logits.shape[-1]), axis=-1)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)


def training_step(config: ModelConfig) -> Any:
    """The function ``step(state, tokens) -> (new state, loss)``."""

    def step(state: Any, tokens: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state["params"], tokens)
        count = state["step"] + 1
        time = count.astype(jnp.float32)
        bias1, bias2 = 1 - config.beta1**time, 1 - config.beta2**time

        def first_moment(m: Any, g: Any) -> Any:
            return config.beta1 * m + (1 - config.beta1) * g

        def second_moment(v: Any, g: Any) -> Any:
            return config.beta2 * v + (1 - config.beta2) * jnp.square(g)

        def adam(p: Any, m: Any, v: Any) -> Any:
            return p - config.learning_rate * (m / bias1) / (jnp.sqrt(v / bias2) + config.epsilon)

        mean = jax.tree.map(first_moment, state["mean"], gradients)
        variance = jax.tree.map(second_moment, state["variance"], gradients)
        params = jax.tree.map(adam, state["params"], mean, variance)
        return {"params": params, "mean": mean, "variance": variance, "step": count}, loss

    return step
