"""Training of the comparison with XLA's partitioner: optimisers, recurrences, accumulation, recommendation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from partitioning_programs import Made, Places, Program

__all__ = ["LEARNING"]

_Update = Callable[[Any, Any, Any], tuple[Any, Any]]


def _mean_square(w: Any, x: Any, y: Any) -> Any:
    h = x
    for a in w[:-1]:
        h = jax.nn.gelu(h @ a)
    return jnp.mean((h @ w[-1] - y) ** 2)


def _adam_clipped(w: Any, g: Any, s: Any) -> tuple[Any, Any]:
    norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
    g = jax.tree.map(lambda g: g * jnp.minimum(1, 1 / (norm + 1e-6)), g)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, s[0], g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, s[1], g)
    w = jax.tree.map(lambda w, m, v: w - 0.01 * (m / (jnp.sqrt(jnp.abs(v)) + 1e-8) + 0.1 * w), w, m, v)
    return w, (m, v)


def _lamb(w: Any, g: Any, s: Any) -> tuple[Any, Any]:
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, s[0], g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, s[1], g)

    def one(w: Any, m: Any, v: Any) -> Any:
        u = m / (jnp.sqrt(jnp.abs(v)) + 1e-6) + 0.01 * w
        return w - 0.01 * jnp.linalg.norm(w) / (jnp.linalg.norm(u) + 1e-6) * u

    return jax.tree.map(one, w, m, v), (m, v)


def _adafactor(w: Any, g: Any, s: Any) -> tuple[Any, Any]:
    rows = jax.tree.map(lambda r, g: 0.9 * r + 0.1 * jnp.mean(g * g, 1), s[0], g)
    columns = jax.tree.map(lambda c, g: 0.9 * c + 0.1 * jnp.mean(g * g, 0), s[1], g)

    def one(w: Any, g: Any, r: Any, c: Any) -> Any:
        u = g * lax.rsqrt(jnp.abs(r[:, None] * c[None] / jnp.mean(r)) + 1e-8)
        return w - 0.01 * u / jnp.maximum(1, jnp.sqrt(jnp.mean(u * u)))

    return jax.tree.map(one, w, g, rows, columns), (rows, columns)


def _momentum(w: Any, g: Any, s: Any) -> tuple[Any, Any]:
    m = jax.tree.map(lambda m, g: 0.9 * m + g, s[0], g)
    return jax.tree.map(lambda w, m, g: w - 0.1 * (g + 0.9 * m), w, m, g), (m, s[1])


def _optimised(
    update: _Update, specs: tuple[tuple[Any, ...], ...], batch: Any, factored: bool = False
) -> Callable[[Places], Made]:
    """One step of a perceptron with an optimiser whose states lie like the weights."""

    def make(at: Places) -> Made:
        shapes = ((32, 96), (96, 64), (64, 32))

        def step(w: Any, s: Any, x: Any, y: Any) -> Any:
            value, g = jax.value_and_grad(_mean_square)(w, x, y)
            return value, *update(w, g, s)

        w = [at.array(s, *p) for s, p in zip(shapes, specs, strict=True)]
        states: Any = (w, w)
        if factored:
            both = [(*p, None, None)[:2] for p in specs]
            states = tuple([at.array((s[k],), p[k]) for s, p in zip(shapes, both, strict=True)] for k in (0, 1))
        x = at.array((64, 32), batch)
        args = (w, states, x, x)
        outs = (at(), *jax.tree.map(lambda a: a.sharding, (w, states)))
        return jax.jit(step, out_shardings=outs, donate_argnums=(0, 1)), args

    return make


def _accumulated(at: Places) -> Made:
    """Gradients in bf16 of four microbatches, added in f32; weights fully sharded; then a clipped step."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def one(total: Any, xy: Any) -> Any:
            half = [a.astype(jnp.bfloat16) for a in w]
            value, g = jax.value_and_grad(lambda w: _mean_square(w, *xy).astype(np.float32))(half)
            return jax.tree.map(lambda t, g: t + g.astype(np.float32), total, g), value

        zeros = [jnp.zeros_like(a) for a in w]
        g, values = lax.scan(one, zeros, (x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)))
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in g))
        return values.mean(), [a - 0.1 * b / jnp.maximum(norm, 1) for a, b in zip(w, g, strict=True)]

    w = [at.array((32, 64), "x"), at.array((64, 32), "x")]
    data = at.array((4, 32, 32), None, "x")
    return jax.jit(step, out_shardings=(at(), [at("x")] * 2)), (w, data, data)


def _accumulated_whole(at: Places) -> Made:
    """The same with replicated weights and momentum, batch split inside the step."""

    def step(w: Any, m: Any, x: Any) -> Any:
        micro = at.shard(x.reshape(4, -1, 32), None, "x")

        def one(c: Any, x: Any) -> Any:
            value, g = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
            return (c[0] + value, c[1] + g), None

        (value, g), _ = lax.scan(one, (0.0, jnp.zeros_like(w)), micro)
        m = 0.9 * m + g / 4
        return value / 4, w - 0.1 * m, m

    square = at.array((32, 32))
    return jax.jit(step, out_shardings=(at(), at(), at())), (square, square, at.array((128, 32), "x"))


def _layers(at: Places) -> Made:
    """A scan over layers with fully sharded bf16 weights and rematerialisation, trained by Adam."""

    def step(w: Any, m: Any, v: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            @jax.checkpoint
            def one(h: Any, w: Any) -> Any:
                up, down = (a.astype(jnp.bfloat16) for a in w)
                return h + jax.nn.relu(h @ up) @ down, None

            return jnp.mean(lax.scan(one, x.astype(jnp.bfloat16), w)[0].astype(np.float32) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        return value, jax.tree.map(lambda w, m, v: w - 0.01 * m / (jnp.sqrt(jnp.abs(v)) + 1e-6), w, m, v), m, v

    w = (at.array((4, 32, 64), None, "x", "y"), at.array((4, 64, 32), None, "y", "x"))
    places = tuple(a.sharding for a in w)
    outs = (at(), places, places, places)
    return jax.jit(step, out_shardings=outs, donate_argnums=(0, 1, 2)), (w, w, w, at.array((32, 32), ("x", "y")))


def _adapters(at: Places) -> Made:
    """Low-rank adapters on frozen weights: gradients only for the small ones."""

    def step(w: Any, small: Any, x: Any, y: Any) -> Any:
        def loss(small: Any) -> Any:
            h = x
            for a, (l, r) in zip(w, small, strict=True):
                h = jnp.tanh(h @ a + (h @ l) @ r)
            return jnp.mean((h - y) ** 2)

        value, g = jax.value_and_grad(loss)(small)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, small, g)

    w = [at.array((64, 64), None, "y"), at.array((64, 64), "y")]
    small = [(at.array((64, 4)), at.array((4, 64), None, "y")), (at.array((64, 4), "y"), at.array((4, 64)))]
    data = at.array((32, 64), "x")
    outs = (at(), jax.tree.map(lambda a: a.sharding, small))
    return jax.jit(step, out_shardings=outs), (w, small, data, data)


# -- recurrences ------------------------------------------------------------------------------------------------------


def _gru(spec: tuple[Any, ...], training: bool) -> Callable[[Places], Made]:
    def make(at: Places) -> Made:
        def run(w: Any, x: Any) -> Any:
            def cell(h: Any, x: Any) -> Any:
                z, r = jnp.split(jax.nn.sigmoid(x @ w["in"] + h @ w["state"]), 2, -1)
                n = jnp.tanh(x @ w["new"] + (r * h) @ w["old"])
                h = (1 - z) * h + z * n
                return h, h

            return lax.scan(cell, jnp.zeros((x.shape[1], 32)), x)[1]

        def step(w: Any, x: Any) -> Any:
            value, g = jax.value_and_grad(lambda w: jnp.mean(run(w, x)[-1] ** 2))(w)
            return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

        shapes = {"in": (16, 64), "state": (32, 64), "new": (16, 32), "old": (32, 32)}
        w = {n: at.array(s, *spec) for n, s in shapes.items()}
        x = at.array((10, 32, 16), None, "x")
        if training:
            return jax.jit(step, out_shardings=(at(), {n: at(*spec) for n in shapes})), (w, x)
        return jax.jit(run, out_shardings=at(None, "x")), (w, x)

    return make


def _lstm_tensor(at: Places) -> Made:
    """LSTM training, gates split over ``y``: one fused product per step."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            def cell(carry: Any, x: Any) -> Any:
                h, c = carry
                gates = jnp.einsum("bd,dgk->bgk", jnp.concatenate([x, h], -1), w)
                i, f, g, o = (gates[:, k] for k in range(4))
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

            zero = jnp.zeros((x.shape[1], 32))
            return jnp.mean((lax.scan(cell, (zero, zero), x)[0][0] - y) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * g

    place = (None, None, "y")
    args = (at.array((48, 4, 32), *place), at.array((8, 16, 16), None, "x"), at.array((16, 32), "x"))
    return jax.jit(step, out_shardings=(at(), at(*place))), args


def _advantages(at: Places) -> Made:
    """Policy gradients: rewards discounted backwards, clipped ratios, actions looked up."""

    def step(w: Any, x: Any, actions: Any, rewards: Any) -> Any:
        def loss(w: Any) -> Any:
            logits, values = x @ w["policy"], (x @ w["value"])[..., 0]

            def back(c: Any, r: Any) -> Any:
                c = r + 0.95 * c
                return c, c

            returns = lax.scan(back, jnp.zeros(rewards.shape[1]), rewards, reverse=True)[1]
            gain = returns - values
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], -1)[..., 0]
            ratio = jnp.exp(logp - lax.stop_gradient(logp))
            clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
            return -jnp.mean(clipped) + jnp.mean((values - returns) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

    w = {"policy": at.array((8, 16)), "value": at.array((8, 1))}
    args = (w, at.array((12, 64, 8), None, "x"), at.array((12, 64), None, "x", dtype=np.int32))
    outs = (at(), {n: at() for n in w})
    return jax.jit(step, out_shardings=outs), (*args, at.array((12, 64), None, "x"))


# -- recommendation, gradients of gradients ----------------------------------------------------------------------


def _recommender(at: Places) -> Made:
    """Tables split by row, features by batch, pairwise products of features; trained."""

    def step(tables: Any, w: Any, dense: Any, ids: Any, clicked: Any) -> Any:
        def loss(tables: Any, w: Any) -> Any:
            found = [t[ids[:, k]] for k, t in enumerate(tables)]
            h = jnp.stack([jax.nn.relu(dense @ w[0]), *found], 1)
            pairs = jnp.einsum("bie,bje->bij", h, h).reshape(h.shape[0], -1)
            logit = (jnp.concatenate([h[:, 0], pairs], -1) @ w[1])[:, 0]
            return jnp.mean(jax.nn.softplus(logit) - clicked * logit)

        value, g = jax.value_and_grad(loss, (0, 1))(tables, w)
        return value, *jax.tree.map(lambda w, g: w - 0.1 * g, (tables, w), g)

    tables = [at.array((256, 16), "y"), at.array((128, 16), "y")]
    w = [at.array((8, 16)), at.array((25, 1))]
    args = (tables, w, at.array((64, 8), "x"), at.array((64, 2), "x", dtype=np.int32), at.array((64,), "x"))
    return jax.jit(step, out_shardings=(at(), [at("y")] * 2, [at()] * 2)), args


def _factorised(at: Places) -> Made:
    """Ratings factorised: rows of two tables gathered for a split list of pairs."""

    def step(users: Any, items: Any, u: Any, i: Any, r: Any) -> Any:
        def loss(users: Any, items: Any) -> Any:
            return jnp.mean((jnp.sum(users[u] * items[i], -1) - r) ** 2)

        value, g = jax.value_and_grad(loss, (0, 1))(users, items)
        return value, users - g[0], items - g[1]

    pairs = at.array((256,), "x", dtype=np.int32)
    args = (at.array((64, 8), "x"), at.array((32, 8)), pairs, pairs, at.array((256,), "x"))
    return jax.jit(step, out_shardings=(at(), at("x"), at())), args


def _meta(at: Places) -> Made:
    """A gradient through a gradient step, tasks split."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def task(w: Any, x: Any, y: Any) -> Any:
            inner = jax.grad(_mean_square)(w, x, y)
            return _mean_square(jax.tree.map(lambda w, g: w - 0.1 * g, w, inner), y, x)

        def loss(w: Any) -> Any:
            return jnp.mean(jax.vmap(lambda x, y: task(w, x, y))(x, y))

        value, g = jax.value_and_grad(loss)(w)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

    data = at.array((8, 8, 16), "x")
    return jax.jit(step, out_shardings=(at(), [at()] * 2)), ([at.array((16, 32)), at.array((32, 16))], data, data)


def _private(at: Places) -> Made:
    """Gradients per example, each clipped, then added."""

    def step(w: Any, x: Any, y: Any) -> Any:
        g = jax.vmap(jax.grad(_mean_square), (None, 0, 0))(w, x, y)
        norm = jnp.sqrt(sum(jnp.sum(a.reshape(a.shape[0], -1) ** 2, 1) for a in g))
        scale = 1 / jnp.maximum(1, norm)
        g = [jnp.einsum("b,bij->ij", scale, a) / x.shape[0] for a in g]
        return [a - 0.1 * b for a, b in zip(w, g, strict=True)]

    data = at.array((32, 16), "x")
    return jax.jit(step, out_shardings=[at()] * 2), ([at.array((16, 24)), at.array((24, 16))], data, data)


def _stages(at: Places) -> Made:
    """A pipeline of four stages by rolling a buffer, data-parallel over ``y``; trained."""

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            def one(state: Any, x: Any) -> Any:
                state = at.shard(jnp.roll(state, 1, 0).at[0].set(x), "x", "y")
                state = at.shard(jnp.tanh(jnp.einsum("sbd,sde->sbe", state, w)), "x", "y")
                return state, state[-1]

            out = lax.scan(one, jnp.zeros((4, 16, 32)), x)[1]
            return jnp.mean(out[3:] ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, w - 0.1 * g

    return jax.jit(step, out_shardings=(at(), at("x"))), (at.array((4, 32, 32), "x"), at.array((7, 16, 32), None, "y"))


_FOUR, _EIGHT = {"x": 4}, {"x": 8}
_TWO_FOUR, _FOUR_TWO = {"x": 2, "y": 4}, {"x": 4, "y": 2}
_CUBE = {"x": 2, "y": 2, "z": 2}
_FULL = (("x",), ("x",), ("x",))
_SQUARE = (("x", "y"), ("y", "x"), ("x", "y"))
_COLUMN = ((None, "y"), ("y",), (None, "y"))
_SUB = ((("x", "y"), "z"), ("z", ("x", "y")), (("x", "y"), "z"))

LEARNING: tuple[Program, ...] = (
    Program("Adam and clipping, FSDP", _FOUR, _optimised(_adam_clipped, _FULL, "x")),
    Program("Adam and clipping, FSDP x tensor", _CUBE, _optimised(_adam_clipped, _SUB, ("x", "y"))),
    Program("LAMB, 2D weights", _FOUR_TWO, _optimised(_lamb, _SQUARE, "x")),
    Program("Adafactor, FSDP", _EIGHT, _optimised(_adafactor, _FULL, "x", factored=True)),
    Program("Adafactor, 2D weights", _TWO_FOUR, _optimised(_adafactor, _SQUARE, "x", factored=True)),
    Program("Nesterov momentum, data x tensor", _TWO_FOUR, _optimised(_momentum, _COLUMN, "x")),
    Program("gradient accumulation in bf16, FSDP", _FOUR, _accumulated),
    Program("gradient accumulation, batch split inside", _EIGHT, _accumulated_whole),
    Program("layers in a scan, bf16, remat and Adam", _FOUR_TWO, _layers),
    Program("low-rank adapters, data x tensor", _TWO_FOUR, _adapters),
    Program("GRU", _EIGHT, _gru((), False)),
    Program("GRU training, data parallel", _FOUR, _gru((), True)),
    Program("GRU training, data x tensor", _FOUR_TWO, _gru((None, "y"), True)),
    Program("LSTM training, gates split", _FOUR_TWO, _lstm_tensor),
    Program("policy gradients", _EIGHT, _advantages),
    Program("recommender, tables split", _TWO_FOUR, _recommender),
    Program("matrix factorisation", _EIGHT, _factorised),
    Program("gradient through a gradient step", _FOUR, _meta),
    Program("clipped gradients per example", _EIGHT, _private),
    Program("pipeline by rolling, training", _FOUR_TWO, _stages),
)
