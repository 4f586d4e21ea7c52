"""Language models and their hand plans: training of dense decoders and mixtures of experts, serving with a cache."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plan_programs import HandPlan, Made, PlanProgram, Points, Size, abstract, adam

__all__ = ["LANGUAGE_PLANS"]

BOTH = ("data", "model")
_LAYERS, _VOCABULARY, _LENGTH = 8, 32_768, 1024


def _norm(x: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-5).astype(x.dtype)


def _decoder(at: Points, size: Size) -> Made:
    d, heads = size.width, size.width // 128

    def attention(y: Any, w: Any) -> Any:
        q, k, v = (jnp.einsum("btd,dhk->bthk", y, w[n]) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 128**-0.5
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
        return jnp.einsum("bthk,hkd->btd", jnp.einsum("bhqk,bkhd->bqhd", weights, v), w["o"])

    def layer(h: Any, w: Any) -> Any:
        h = at("stream", h)
        h = h + at("stream", attention(at("inside", _norm(h)), w))
        y = at("inside", _norm(h))
        return h + at("stream", jax.nn.gelu(y @ w["up"]) @ w["down"]), None

    def loss(w: Any, tokens: Any) -> Any:
        h, _ = lax.scan(jax.checkpoint(layer), w["embed"][tokens], w["layers"])
        logits = (_norm(h) @ w["embed"].T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1))

    shapes = {n: abstract(_LAYERS, d, heads, 128) for n in "qkv"} | {"o": abstract(_LAYERS, heads, 128, d)}
    shapes |= {"up": abstract(_LAYERS, d, 4 * d), "down": abstract(_LAYERS, 4 * d, d)}
    w = {"embed": abstract(_VOCABULARY, d), "layers": shapes}
    tokens = abstract(size.batch, _LENGTH, dtype="int32")
    return adam(loss), {"w": w, "m": w, "v": w, "tokens": tokens}, ("w", "m", "v")


def _decoder_specs(split: Any, heads: Any, batch: Any) -> dict[str, tuple[Any, ...]]:
    """Weights over ``split`` along the model's width and over ``heads`` along heads, MLP and vocabulary."""
    return {
        "*['embed']": (heads, split),
        "*['q']": (None, split, heads),
        "*['k']": (None, split, heads),
        "*['v']": (None, split, heads),
        "*['o']": (None, heads, None, split),
        "*['up']": (None, split, heads),
        "*['down']": (None, heads, split),
        "batch[0]": (batch,),
    }


_DECODER = (
    HandPlan("data parallel", {"batch[0]": (BOTH,)}),
    HandPlan("Megatron", _decoder_specs(None, "model", "data")),
    HandPlan(
        "Megatron, sequence parallel",
        _decoder_specs(None, "model", "data"),
        {"stream": ("data", "model"), "inside": ("data",)},
    ),
    HandPlan("FSDP", _decoder_specs(BOTH, None, BOTH), {"stream": (BOTH,)}),
    HandPlan("FSDP + tensor", _decoder_specs("data", "model", "data"), {"stream": ("data",)}),
)


def _experts(at: Points, size: Size) -> Made:
    """A layer of a mixture: two experts of many per token by capacity, dispatched by a product."""
    d, experts, tokens = size.width // 2, 2 * size.model, size.batch * 256
    capacity = 2 * 256 * size.batch // experts

    def loss(w: Any, x: Any) -> Any:
        gates = jax.nn.softmax(jnp.einsum("gsd,de->gse", x, w["router"]).astype(jnp.float32))
        best, which = lax.top_k(gates, 2)
        chosen = jax.nn.one_hot(which, experts, dtype=jnp.float32)
        place = jnp.cumsum(chosen.sum(2), 1) * chosen.sum(2) - 1
        slot = jax.nn.one_hot(place.astype(jnp.int32), capacity // size.batch, dtype=jnp.float32)
        combine = (jnp.einsum("gske,gsk->gse", chosen, best)[..., None] * slot).astype(x.dtype)
        sent = at("experts", jnp.einsum("gsec,gsd->egcd", (combine > 0).astype(x.dtype), x))
        h = at(
            "experts", jnp.einsum("egcf,efd->egcd", jax.nn.gelu(jnp.einsum("egcd,edf->egcf", sent, w["up"])), w["down"])
        )
        return jnp.mean((at("tokens", jnp.einsum("gsec,egcd->gsd", combine, h)) - x).astype(jnp.float32) ** 2)

    w = {"router": abstract(d, experts), "up": abstract(experts, d, 4 * d), "down": abstract(experts, 4 * d, d)}
    x = abstract(size.batch, tokens // size.batch, d)
    return adam(loss), {"w": w, "m": w, "v": w, "x": x}, ("w", "m", "v")


_EXPERTS = (
    HandPlan("data parallel", {"batch[0]": (BOTH,)}),
    HandPlan(
        "expert parallel",
        {"*['up']": ("model",), "*['down']": ("model",), "batch[0]": (BOTH,)},
        {"experts": ("model", "data"), "tokens": (BOTH,)},
    ),
    HandPlan(
        "expert parallel, tokens over data",
        {"*['up']": ("model",), "*['down']": ("model",), "batch[0]": ("data",)},
        {"experts": ("model", "data"), "tokens": ("data",)},
    ),
    HandPlan(
        "tensor parallel",
        {"*['up']": (None, None, "model"), "*['down']": (None, "model"), "batch[0]": ("data",)},
        {"experts": (None, "data")},
    ),
)


def _serving(at: Points, size: Size) -> Made:
    """One token per sequence, with a cache of keys and values; half of the heads of queries."""
    d, heads, groups, length = size.width, size.width // 128, max(size.model, 8), 4096

    def layer(carry: Any, lw: Any) -> Any:
        h, place = carry
        w, keys, values = lw
        y = _norm(h)
        q = jnp.einsum("bd,dghk->bghk", y, w["q"])
        k, v = (jnp.einsum("bd,dgk->bgk", y, w[n]) for n in "kv")
        keys, values = (
            lax.dynamic_update_slice(c, n[:, :, None], (0, 0, place, 0)) for c, n in ((keys, k), (values, v))
        )
        scores = jnp.where(jnp.arange(length) <= place, jnp.einsum("bghk,bgtk->bght", q, keys), -1e9)
        mixed = jnp.einsum("bght,bgtk->bghk", jax.nn.softmax(scores, -1), values)
        h = h + jnp.einsum("bghk,ghkd->bd", at("heads", mixed), w["o"])
        return (h + jax.nn.gelu(_norm(h) @ w["up"]) @ w["down"], place), (keys, values)

    def step(w: Any, keys: Any, values: Any, tokens: Any, place: Any) -> Any:
        (h, _), (keys, values) = lax.scan(layer, (w["embed"][tokens], place), (w["layers"], keys, values))
        return jnp.argmax(_norm(h) @ w["embed"].T, -1), keys, values

    per = heads // groups
    shapes = {"q": abstract(_LAYERS, d, groups, per, 128), "o": abstract(_LAYERS, groups, per, 128, d)}
    shapes |= {n: abstract(_LAYERS, d, groups, 128) for n in "kv"}
    shapes |= {"up": abstract(_LAYERS, d, 4 * d), "down": abstract(_LAYERS, 4 * d, d)}
    w = {"embed": abstract(_VOCABULARY, d), "layers": shapes}
    cache = abstract(_LAYERS, 4 * size.batch, groups, length, 128)
    tokens, place = abstract(4 * size.batch, dtype="int32"), abstract(dtype="int32")
    return step, {"w": w, "keys": cache, "values": cache, "tokens": tokens, "place": place}, ("keys", "values")


_TENSOR = {
    "*['embed']": ("model",),
    "*['q']": (None, None, "model"),
    "*['k']": (None, None, "model"),
    "*['v']": (None, None, "model"),
    "*['o']": (None, "model"),
    "*['up']": (None, None, "model"),
    "*['down']": (None, "model"),
}
_SERVING = (
    HandPlan("batch", {"keys": (None, BOTH), "values": (None, BOTH), "tokens": (BOTH,)}),
    HandPlan(
        "heads and batch",
        {**_TENSOR, "keys": (None, "data", "model"), "values": (None, "data", "model"), "tokens": ("data",)},
    ),
    HandPlan(
        "sequence and batch",
        {
            **_TENSOR,
            "keys": (None, "data", None, "model"),
            "values": (None, "data", None, "model"),
            "tokens": ("data",),
        },
    ),
)

LANGUAGE_PLANS = (
    PlanProgram("GPT, training", _decoder, _DECODER),
    PlanProgram("mixture of experts, training", _experts, _EXPERTS),
    PlanProgram("serving with a cache", _serving, _SERVING),
)
