"""Infers with numpyro: a few steps of NUTS and of variational inference, and a sample of what they predict."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from told import tell

rng = np.random.default_rng(0)
x = rng.standard_normal((20, 3)).astype(np.float32)
y = (x @ np.array([1.0, -2.0, 0.5], np.float32) + 0.1 * rng.standard_normal(20)).astype(np.float32)


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
state = svi.init(jax.random.key(0), x, y)
for _ in range(3):
    state, loss = jax.jit(svi.update)(state, x, y)
    tell(loss=loss)
tell(params=svi.get_params(state))
mcmc = MCMC(NUTS(model, max_tree_depth=3), num_warmup=3, num_samples=3, progress_bar=False)
mcmc.run(jax.random.key(1), x, y)
drawn = mcmc.get_samples()
tell(first=jax.tree.map(jnp.isfinite, drawn))
tell(predicted=Predictive(model, {"w": jnp.ones((2, 3)), "scale": jnp.ones(2)})(jax.random.key(2), x)["y"])
