"""Statistics, particles and graphs of the comparison with XLA's partitioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from partitioning_programs import Made, Places, Program

__all__ = ["STATISTICS"]


# -- statistics -------------------------------------------------------------------------------------------------------


def _options(at: Places) -> Made:
    """Monte-Carlo paths priced: every device draws its part."""

    def f(key: Any, start: Any) -> Any:
        steps = jax.random.normal(key, (8, 1024))
        steps = at.shard(steps, None, "x")
        paths = start * jnp.exp(jnp.cumsum(0.1 * steps - 0.005, 0))
        gain = jnp.maximum(paths.mean(0) - 1, 0)
        return gain.mean(), gain.std()

    return jax.jit(f, out_shardings=at()), (at.array((2,), dtype=np.uint32), at.array(()))


def _kalman(at: Places) -> Made:
    """A batch of filters over time; small matrices per series."""

    def f(a: Any, c: Any, y: Any) -> Any:
        def one(state: Any, y: Any) -> Any:
            m, p = state
            m, p = m @ a.T, a @ p @ a.T + 0.1 * jnp.eye(4)
            s = c @ p @ c.T + jnp.eye(2)
            gain = jnp.swapaxes(jnp.linalg.solve(s, c @ p), 1, 2)
            m = m + jnp.einsum("bij,bj->bi", gain, y - m @ c.T)
            return (m, p - gain @ c @ p), m

        start = (jnp.zeros((y.shape[1], 4)), jnp.broadcast_to(jnp.eye(4), (y.shape[1], 4, 4)))
        return lax.scan(one, start, y)[1]

    return jax.jit(f, out_shardings=at(None, "x")), (
        at.array((4, 4)),
        at.array((2, 4)),
        at.array((6, 32, 2), None, "x"),
    )


def _mixture(at: Places) -> Made:
    """Expectation maximisation of Gaussians, examples split."""

    def f(x: Any, mean: Any) -> Any:
        def one(c: Any, _: Any) -> Any:
            mean, var, weight = c
            logp = -0.5 * jnp.sum((x[:, None] - mean) ** 2 / var + jnp.log(var), -1) + jnp.log(weight)
            r = jax.nn.softmax(logp, -1)
            n = r.sum(0)
            mean = (r.T @ x) / n[:, None]
            var = jnp.einsum("nk,nkd->kd", r, (x[:, None] - mean) ** 2) / n[:, None] + 1e-3
            return (mean, var, n / x.shape[0]), jax.nn.logsumexp(logp, -1).mean()

        (mean, var, weight), seen = lax.scan(one, (mean, jnp.ones_like(mean), jnp.ones(4) / 4), None, length=3)
        return mean, var, weight, seen

    return jax.jit(f, out_shardings=at()), (at.array((512, 4), "x"), at.array((4, 4)))


def _clusters(hot: bool) -> Callable[[Places], Made]:
    """k-means with points split over one axis and coordinates over the other."""

    def make(at: Places) -> Made:
        def f(x: Any, centres: Any) -> Any:
            def one(centres: Any, _: Any) -> Any:
                distance = jnp.sum(centres**2, -1) - 2 * x @ centres.T
                nearest = jnp.argmin(distance, 1)
                if hot:
                    member = jax.nn.one_hot(nearest, 8)
                    total, count = member.T @ x, member.sum(0)
                else:
                    total = jax.ops.segment_sum(x, nearest, 8)
                    count = jnp.bincount(nearest, length=8).astype(np.float32)
                return total / jnp.maximum(count, 1)[:, None], jnp.min(distance, 1).mean()

            return lax.scan(one, centres, None, length=3)

        args = (at.array((256, 16), "x", "y"), at.array((8, 16), None, "y"))
        return jax.jit(f, out_shardings=(at(None, "y"), at())), args

    return make


def _ranks(at: Places) -> Made:
    """Quantiles, a histogram, the largest few and their places, along a split dimension."""

    def f(x: Any) -> Any:
        order = jnp.sort(x, 0)
        median = order[x.shape[0] // 2]
        counts = jnp.histogram(x, bins=16, range=(-2.0, 2.0))[0]
        top = lax.top_k(x.T, 4)
        return median, counts, top, jnp.argmax(x, 0), jnp.cumsum(x, 0)[-1]

    return jax.jit(f, out_shardings=at()), (at.array((256, 8), "x"),)


def _transport(at: Places) -> Made:
    """Optimal transport by alternating scaling; the cost matrix split both ways."""

    def f(x: Any, y: Any) -> Any:
        cost = at.shard(jnp.sum((x[:, None] - y[None]) ** 2, -1), "x", "y")

        def one(_: Any, c: Any) -> Any:
            u, v = c
            u = -jax.nn.logsumexp(v[None] - cost, 1)
            return u, -jax.nn.logsumexp(u[:, None] - cost, 0)

        u, v = lax.fori_loop(0, 5, one, (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0])))
        return jnp.sum(jnp.exp(u[:, None] + v[None] - cost) * cost)

    return jax.jit(f, out_shardings=at()), (at.array((128, 3), "x"), at.array((64, 3), "y"))


# -- particles and graphs ----------------------------------------------------------------------------------------------


def _molecules(at: Places) -> Made:
    """Short-range forces by the gradient of a masked pair energy, leapfrog."""

    def f(p: Any, v: Any) -> Any:
        def energy(p: Any) -> Any:
            d = p[:, None] - p[None]
            d = d - jnp.round(d)
            r = jnp.sum(d * d, -1) + jnp.eye(p.shape[0])
            inverse = (0.05 / r) ** 3
            return jnp.sum(jnp.where(r < 0.25, inverse**2 - inverse, 0))

        def one(c: Any, _: Any) -> Any:
            p, v = c
            v = v - 1e-4 * jax.grad(energy)(p)
            return (p + 1e-3 * v, v), jnp.sum(v * v)

        return lax.scan(one, (p, v), None, length=3)

    part = at.array((64, 3), "x")
    return jax.jit(f, out_shardings=((at("x"), at("x")), at())), (part, part)


def _graph_attention(at: Places) -> Made:
    """Attention over edges: maxima, sums and means per node; edges split, nodes whole."""

    def step(w: Any, nodes: Any, source: Any, target: Any) -> Any:
        def loss(w: Any) -> Any:
            h = nodes @ w["in"]
            score = jax.nn.leaky_relu(h[source] @ w["a"] + h[target] @ w["b"])
            top = jax.ops.segment_max(score, target, 48)
            p = jnp.exp(score - lax.stop_gradient(top)[target])
            total = jax.ops.segment_sum(p, target, 48)
            out = jax.ops.segment_sum((p / total[target])[:, None] * h[source], target, 48)
            degree = jax.ops.segment_sum(jnp.ones_like(p), target, 48)
            return jnp.mean((out / jnp.maximum(degree, 1)[:, None]) ** 2)

        value, g = jax.value_and_grad(loss)(w)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, w, g)

    edges = at.array((512,), "x", dtype=np.int32)
    w = {"in": at.array((8, 16)), "a": at.array((16,)), "b": at.array((16,))}
    return jax.jit(step, out_shardings=(at(), {n: at() for n in w})), (w, at.array((48, 8)), edges, edges)


def _paths(at: Places) -> Made:
    """All shortest paths: min-plus updates of a split matrix by one of its rows and columns."""

    def f(d: Any) -> Any:
        def one(k: Any, d: Any) -> Any:
            return jnp.minimum(d, d[:, k, None] + d[None, k])

        return lax.fori_loop(0, 64, one, jnp.abs(d))

    return jax.jit(f, out_shardings=at("x")), (at.array((64, 64), "x"),)


def _hidden_states(at: Places) -> Made:
    """The forward algorithm in logarithms, states split."""

    def f(transition: Any, emission: Any, seen: Any) -> Any:
        def one(a: Any, y: Any) -> Any:
            return jax.nn.logsumexp(a[:, None] + transition, 0) + emission[:, y], None

        return jax.nn.logsumexp(lax.scan(one, emission[:, 0], seen)[0])

    args = (at.array((64, 64), None, "x"), at.array((64, 16), "x"), at.array((12,), dtype=np.int32))
    return jax.jit(f, out_shardings=at()), args


def _pages(at: Places) -> Made:
    """Page rank on a list of edges that is split."""

    def f(source: Any, target: Any) -> Any:
        degree = jnp.maximum(jnp.zeros(64).at[source].add(1.0), 1)

        def one(_: Any, r: Any) -> Any:
            return 0.15 / 64 + 0.85 * jnp.zeros(64).at[target].add((r / degree)[source])

        return lax.fori_loop(0, 5, one, jnp.full(64, 1 / 64))

    edges = at.array((512,), ("x", "y"), dtype=np.int32)
    return jax.jit(f, out_shardings=at()), (edges, edges)


_FOUR, _EIGHT = {"x": 4}, {"x": 8}
_TWO_FOUR, _FOUR_TWO = {"x": 2, "y": 4}, {"x": 4, "y": 2}

STATISTICS: tuple[Program, ...] = (
    Program("Monte-Carlo options", _EIGHT, _options),
    Program("Kalman filters", _FOUR, _kalman),
    Program("mixture of Gaussians", _EIGHT, _mixture),
    Program("k-means, one-hot, points x coordinates", _FOUR_TWO, _clusters(True)),
    Program("k-means, segment sums, points x coordinates", _TWO_FOUR, _clusters(False)),
    Program("order statistics", _EIGHT, _ranks),
    Program("optimal transport", _FOUR_TWO, _transport),
    Program("molecular dynamics", _FOUR, _molecules),
    Program("graph attention", _EIGHT, _graph_attention),
    Program("shortest paths", _EIGHT, _paths),
    Program("hidden Markov model", _FOUR, _hidden_states),
    Program("page rank", _FOUR_TWO, _pages),
)
