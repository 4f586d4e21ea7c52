"""Sampling and inference by numpyro and blackjax; graphs by jraph, spheres by e3nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from library_cases import LibraryProgram, batched

__all__ = ["PROGRAMS"]

Made = tuple[Callable[..., Any], tuple[Any, ...]]
R = np.random.default_rng(2)
DATA = R.standard_normal((8, 4)).astype(np.float32)
LABELS = (DATA.sum(1) > 0).astype(np.int32)


def _logistic(x: Any, y: Any) -> None:
    import numpyro
    from numpyro import distributions as dist

    w = numpyro.sample("w", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    b = numpyro.sample("b", dist.Cauchy(0.0, 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def numpyro_density() -> Made:
    from numpyro.infer.util import log_density

    def f(w: Any, b: Any, x: Any, y: Any) -> Any:
        return jax.value_and_grad(lambda p: log_density(_logistic, (x, y), {}, p)[0])({"w": w, "b": b})

    return f, (DATA[0], np.float32(0.1), DATA, LABELS)


def numpyro_svi() -> Made:
    from numpyro import optim
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(_logistic, AutoNormal(_logistic), optim.Adam(0.01), Trace_ELBO())
    state = svi.init(jax.random.key(0), DATA, LABELS)
    return svi.update, (state, DATA, LABELS)


def numpyro_nuts() -> Made:
    from numpyro.infer import NUTS

    kernel = NUTS(_logistic, max_tree_depth=4)
    state = kernel.init(jax.random.key(0), 10, None, (DATA, LABELS), {})
    return (lambda s, x, y: kernel.sample(s, (x, y), {}).z), (state, DATA, LABELS)


def blackjax_hmc() -> Made:
    import blackjax

    def f(key: Any, x: Any) -> Any:
        def density(w: Any) -> Any:
            return -jnp.sum((x @ w) ** 2) - jnp.sum(w**2)

        sampler = blackjax.hmc(density, 0.05, jnp.ones(4), 4)
        state = sampler.init(jnp.ones(4))
        states = jax.lax.scan(lambda s, k: (sampler.step(k, s)[0],) * 2, state, jax.random.split(key, 5))[1]
        return states.position

    return f, (jax.random.key(0), DATA)


def blackjax_smc() -> Made:
    import blackjax

    def f(key: Any, x: Any) -> Any:
        density = blackjax.nuts(lambda w: -jnp.sum((w - 1) ** 2), 0.1, jnp.ones(4), max_num_doublings=3)
        step = jax.vmap(lambda k, s: density.step(k, s)[0].position)
        return step(jax.random.split(key, 8), jax.vmap(density.init)(x))

    return f, (jax.random.key(0), DATA)


def jraph_convolution() -> Made:
    import jraph

    graph = jraph.GraphsTuple(
        DATA,
        R.standard_normal((12, 4)).astype(np.float32),
        R.integers(0, 8, 12).astype(np.int32),
        R.integers(0, 8, 12).astype(np.int32),
        np.ones((1, 4), np.float32),
        np.array([8], np.int32),
        np.array([12], np.int32),
    )
    net = jraph.GraphNetwork(
        lambda e, s, r, g: jnp.tanh(e + s - r + g),
        lambda n, s, r, g: jnp.tanh(n + s + r + g),
        lambda n, e, g: n + e + g,
    )
    return net, (graph,)


def e3nn_harmonics() -> Made:
    import e3nn_jax as e3nn

    return (lambda x: e3nn.spherical_harmonics("0e + 1o + 2e", x, normalize=True).array), (DATA[:, :3].copy(),)


PROGRAMS = (
    LibraryProgram("numpyro density", ("numpyro",), numpyro_density, (None, None, batched, batched)),
    LibraryProgram("numpyro svi", ("numpyro",), numpyro_svi, (None, batched, batched)),
    LibraryProgram("numpyro nuts", ("numpyro",), numpyro_nuts, (None, batched, batched), 1e-3),
    LibraryProgram("blackjax hmc", ("blackjax",), blackjax_hmc, (None, batched), 1e-3),
    LibraryProgram("blackjax nuts", ("blackjax",), blackjax_smc, (None, batched), 1e-3),
    LibraryProgram("jraph", ("jraph",), jraph_convolution),
    LibraryProgram("e3nn", ("e3nn_jax",), e3nn_harmonics, (batched,)),
)
