"""Solves differential equations with diffrax, adaptively, and trains through the solver."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from told import tell

times = jnp.linspace(0.0, 2.0, 9)
target = np.stack([np.cos(times), -np.sin(times)], -1).astype(np.float32)
model = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=jax.random.key(0))


def solve(model, solver, y0):
    term = diffrax.ODETerm(lambda t, y, args: model(y))
    control = diffrax.PIDController(rtol=1e-4, atol=1e-4)
    saved = diffrax.SaveAt(ts=times)
    return diffrax.diffeqsolve(term, solver, times[0], times[-1], 0.1, y0, saveat=saved, stepsize_controller=control)


optimizer = optax.adam(3e-2)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def step(model, state):
    @eqx.filter_value_and_grad
    def loss_of(model):
        return jnp.mean((solve(model, diffrax.Tsit5(), jnp.asarray(target[0])).ys - target) ** 2)

    loss, grads = loss_of(model)
    updates, state = optimizer.update(grads, state)
    return eqx.apply_updates(model, updates), state, loss


for _ in range(3):
    model, state, loss = step(model, state)
    tell(loss=loss)
stiff = eqx.filter_jit(solve)(lambda y: -jnp.array([1.0, 100.0]) * y, diffrax.Kvaerno3(), jnp.ones(2))
tell(stiff=stiff.ys, steps=stiff.stats["num_steps"])
