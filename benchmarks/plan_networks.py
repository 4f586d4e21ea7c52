"""Vision, recommendation, graphs, recurrences and science, with their hand plans."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from plan_programs import HandPlan, Made, PlanProgram, Points, Size, abstract, adam

__all__ = ["NETWORKS_PLANS"]

BOTH = ("data", "model")
F32, S32 = "float32", "int32"


def _convolve(x: Any, w: Any, stride: int = 1) -> Any:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _transformer(at: Points, size: Size) -> Made:
    """Images as patches: attention sees all of them."""
    d, heads, patches, layers = size.width // 2, size.width // 128, 256, 6

    def layer(h: Any, w: Any) -> Any:
        h = at("stream", h)
        q, k, v = (jnp.einsum("btd,dhk->bthk", h, w[n]) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125, -1)
        h = h + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhqk,bkhd->bqhd", weights, v), w["o"])
        return h + jax.nn.gelu(h @ w["up"]) @ w["down"], None

    def loss(w: Any, images: Any, labels: Any) -> Any:
        b = images.shape[0]
        parts = images.reshape(b, 16, 14, 16, 14, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, patches, 588)
        h, _ = lax.scan(layer, parts @ w["patch"] + w["place"], w["layers"])
        logits = (h.mean(1) @ w["head"]).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))

    shapes = {n: abstract(layers, d, heads, 64) for n in "qkv"} | {"o": abstract(layers, heads, 64, d)}
    shapes |= {"up": abstract(layers, d, 4 * d), "down": abstract(layers, 4 * d, d)}
    w = {"patch": abstract(588, d), "place": abstract(patches, d), "head": abstract(d, 1000), "layers": shapes}
    batch = 8 * size.batch
    return (
        adam(loss),
        {"w": w, "m": w, "v": w, "images": abstract(batch, 224, 224, 3), "labels": abstract(batch, dtype=S32)},
        ("w", "m", "v"),
    )


_COLUMNS = {
    "*['q']": (None, None, "model"),
    "*['k']": (None, None, "model"),
    "*['v']": (None, None, "model"),
    "*['o']": (None, "model"),
    "*['up']": (None, None, "model"),
    "*['down']": (None, "model"),
}
_TRANSFORMER = (
    HandPlan("data parallel", {"batch[?]": (BOTH,)}),
    HandPlan("Megatron", {**_COLUMNS, "batch[?]": ("data",)}),
)


def _images(at: Points, size: Size) -> Made:
    """Down and up again, with what lies on the way joined: few large images."""
    c, batch = 32, size.data

    def loss(w: Any, x: Any, y: Any) -> Any:
        kept, h = [], x
        for n in range(3):
            h = at("image", jax.nn.relu(_convolve(h, w[f"down{n}"])))
            kept.append(h)
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = jax.nn.relu(_convolve(h, w["middle"]))
        for n in reversed(range(3)):
            h = jnp.repeat(jnp.repeat(h, 2, 1), 2, 2)
            h = at("image", jax.nn.relu(_convolve(jnp.concatenate([h, kept[n]], -1), w[f"up{n}"])))
        return jnp.mean((_convolve(h, w["last"]) - y).astype(jnp.float32) ** 2)

    w = {f"down{n}": abstract(3, 3, c * 2 ** (n - 1) if n else 4, c * 2**n, dtype=F32) for n in range(3)}
    w |= {f"up{n}": abstract(3, 3, c * 2 ** (n + 1) + c * 2**n, c * 2**n, dtype=F32) for n in range(3)}
    w |= {"middle": abstract(3, 3, c * 4, c * 8, dtype=F32), "last": abstract(1, 1, c, 4, dtype=F32)}
    x = abstract(batch, 512, 512, 4, dtype=F32)
    return adam(loss), {"w": w, "m": w, "v": w, "x": x, "y": x}, ("w", "m", "v")


_IMAGES = (
    HandPlan("batch over data", {"batch[?]": ("data",)}),
    HandPlan("batch and rows", {"batch[?]": ("data", "model")}, {"image": ("data", "model")}),
)


def _residual(at: Points, size: Size) -> Made:
    """Convolutions with what goes around them; a batch large enough."""
    c, batch = 64, 16 * size.batch

    def loss(w: Any, x: Any, labels: Any) -> Any:
        h = jax.nn.relu(_convolve(x, w["stem"], 2))
        for n in range(4):
            y = jax.nn.relu(_convolve(h, w[f"a{n}"], 2))
            h = jax.nn.relu(_convolve(y, w[f"b{n}"]) + _convolve(h, w[f"s{n}"], 2))
        logits = h.mean((1, 2)) @ w["head"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))

    del at
    w = {"stem": abstract(7, 7, 3, c, dtype=F32), "head": abstract(16 * c, 1000, dtype=F32)}
    for n in range(4):
        i, o = c * 2**n, c * 2 ** (n + 1)
        w |= {f"a{n}": abstract(3, 3, i, o, dtype=F32), f"b{n}": abstract(3, 3, o, o, dtype=F32)}
        w |= {f"s{n}": abstract(1, 1, i, o, dtype=F32)}
    return (
        adam(loss),
        {"w": w, "m": w, "v": w, "x": abstract(batch, 128, 128, 3, dtype=F32), "y": abstract(batch, dtype=S32)},
        ("w", "m", "v"),
    )


_RESIDUAL = (
    HandPlan("batch over both", {"batch[?]": (BOTH,)}),
    HandPlan("batch and rows", {"batch[0]": ("data", "model"), "batch[1]": ("data",)}),
)


def _recommendation(at: Points, size: Size) -> Made:
    """Tables of features that hold almost all weights, then a small network over pairs."""
    tables, rows, d, batch = 4 * size.model, 2**16, 64, 512 * size.data

    def loss(w: Any, dense: Any, sparse: Any, clicks: Any) -> Any:
        found = jax.vmap(lambda t, i: t[i], (0, 1), 1)(w["tables"], sparse)
        found = at("features", found)
        bottom = jax.nn.relu(jax.nn.relu(dense @ w["b0"]) @ w["b1"])
        features = jnp.concatenate([found, bottom[:, None]], 1)
        pairs = jnp.einsum("bnd,bmd->bnm", features, features).reshape(batch, -1)
        logits = (jax.nn.relu(jnp.concatenate([bottom, pairs], 1) @ w["t0"]) @ w["t1"])[:, 0]
        return jnp.mean(jax.nn.softplus(logits) - clicks * logits)

    def step(w: Any, dense: Any, sparse: Any, clicks: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, dense, sparse, clicks)
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, g), value

    pairs = (tables + 1) ** 2
    w = {"tables": abstract(tables, rows, d, dtype=F32), "b0": abstract(16, 512, dtype=F32)}
    w |= {
        "b1": abstract(512, d, dtype=F32),
        "t0": abstract(d + pairs, 512, dtype=F32),
        "t1": abstract(512, 1, dtype=F32),
    }
    sparse = abstract(batch, tables, dtype=S32)
    batch_of = {"dense": abstract(batch, 16, dtype=F32), "sparse": sparse, "clicks": abstract(batch, dtype=F32)}
    return step, {"w": w, **batch_of}, ("w",)


_RECOMMENDATION = (
    HandPlan(
        "tables over model, batch over both",
        {"w['tables']": ("model",), "dense": (BOTH,), "sparse": (BOTH,), "clicks": (BOTH,)},
        {"features": (BOTH,)},
    ),
    HandPlan(
        "rows over both, batch over both",
        {"w['tables']": (None, BOTH), "dense": (BOTH,), "sparse": (BOTH,), "clicks": (BOTH,)},
        {"features": (BOTH,)},
    ),
    HandPlan(
        "rows over model, batch over data",
        {"w['tables']": (None, "model"), "dense": ("data",), "sparse": ("data",), "clicks": ("data",)},
        {"features": ("data",)},
    ),
)


def _graph(at: Points, size: Size) -> Made:
    """Messages along edges, added up per node; the edges have no order."""
    nodes, edges, d = 2048 * size.data, 16384 * size.data, 32 * size.model

    def loss(w: Any, x: Any, ends: Any, y: Any) -> Any:
        h = x
        for n in range(3):
            sent = at("edges", jax.nn.relu(h[ends[0]] @ w[f"m{n}"]))
            got = at("nodes", jax.ops.segment_sum(sent, ends[1], nodes))
            h = jax.nn.relu(h @ w[f"u{n}"] + got)
        return jnp.mean((h - y) ** 2)

    w = {f"{k}{n}": abstract(d, d, dtype=F32) for k in "mu" for n in range(3)}
    x = abstract(nodes, d, dtype=F32)
    return adam(loss), {"w": w, "m": w, "v": w, "x": x, "ends": abstract(2, edges, dtype=S32), "y": x}, ("w", "m", "v")


_GRAPH = (
    HandPlan("edges over data", {"batch[1]": (None, "data")}, {"edges": ("data",)}),
    HandPlan(
        "nodes and edges over both",
        {"batch[0]": (BOTH,), "batch[1]": (None, BOTH), "batch[2]": (BOTH,)},
        {"edges": (BOTH,), "nodes": (BOTH,)},
    ),
    HandPlan(
        "edges over data, features over model",
        {"batch[0]": (None, "model"), "batch[1]": (None, "data"), "batch[2]": (None, "model")},
        {"edges": ("data", "model"), "nodes": (None, "model")},
    ),
)


def _recurrence(at: Points, size: Size) -> Made:
    """An LSTM over a sequence: the weights are read at each step of it."""
    d, batch, length = size.width // 2, 16 * size.batch, 128

    def loss(w: Any, x: Any, y: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = (h @ w[f"h{k}"] + x @ w[f"x{k}"] for k in "ifgo")
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = at("state", jax.nn.sigmoid(o) * jnp.tanh(c))
            return (h, c), h

        zero = jnp.zeros((batch, d), x.dtype)
        _, out = lax.scan(cell, (zero, zero), x)
        return jnp.mean((out - y).astype(jnp.float32) ** 2)

    w = {f"{a}{k}": abstract(d, d) for a in "hx" for k in "ifgo"}
    x = abstract(length, batch, d)
    return adam(loss), {"w": w, "m": w, "v": w, "x": x, "y": x}, ("w", "m", "v")


_RECURRENCE = (
    HandPlan("batch over both", {"batch[?]": (None, BOTH)}),
    HandPlan(
        "batch and units",
        {"*['h?']": (None, "model"), "*['x?']": (None, "model"), "batch[?]": (None, "data", "model")},
        {"state": ("data", "model")},
    ),
)


def _gradients(at: Points, size: Size) -> Made:
    """Conjugate gradients with a five-point stencil on a square of points."""
    n = 1024 * int(size.devices**0.5)

    def apply(x: Any) -> Any:
        p = jnp.pad(x, 1)
        return 4 * x - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    def solve(b: Any) -> Any:
        def one(_: Any, state: Any) -> Any:
            x, r, p, rr = state
            q = apply(at("grid", p))
            a = rr / jnp.vdot(p, q)
            x, r = x + a * p, r - a * q
            new = jnp.vdot(r, r)
            return x, r, r + new / rr * p, new

        return lax.fori_loop(0, 50, one, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)))[0]

    return solve, {"b": abstract(n, n, dtype=F32)}, ()


_BLOCKS = (
    HandPlan("rows", {"b": (BOTH,)}),
    HandPlan("blocks", {"b": ("data", "model")}, {"grid": ("data", "model")}),
)


def _waves(at: Points, size: Size) -> Made:
    """Waves in three dimensions, to the eighth order in space."""
    n = 128 * 2 ** round(math.log2(size.devices) / 3)

    def step(now: Any, before: Any) -> Any:
        def one(_: Any, state: Any) -> Any:
            u, last = state
            u = at("grid", u)
            change = -8.5 * u
            for axis in range(3):
                for k, c in enumerate((1.6, -0.2, 0.025, -0.0018), 1):
                    change = change + c * (jnp.roll(u, k, axis) + jnp.roll(u, -k, axis))
            return 2 * u - last + 0.1 * change, u

        return lax.fori_loop(0, 20, one, (now, before))

    u = abstract(n, n, n, dtype=F32)
    return step, {"now": u, "before": u}, ("now", "before")


_GRID = (
    HandPlan("planes", {"now": (BOTH,), "before": (BOTH,)}),
    HandPlan("beams", {"now": ("data", "model"), "before": ("data", "model")}),
)

NETWORKS_PLANS = (
    PlanProgram("vision transformer, training", _transformer, _TRANSFORMER),
    PlanProgram("U-Net, training", _images, _IMAGES),
    PlanProgram("residual network, training", _residual, _RESIDUAL),
    PlanProgram("recommendation, training", _recommendation, _RECOMMENDATION),
    PlanProgram("graph network, training", _graph, _GRAPH),
    PlanProgram("LSTM, training", _recurrence, _RECURRENCE),
    PlanProgram("conjugate gradients", _gradients, _BLOCKS),
    PlanProgram("waves", _waves, _GRID),
)
