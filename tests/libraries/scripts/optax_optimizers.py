"""Steps of optax's optimizers, eager and jitted: schedules, clipping, accumulation, injected hyperparameters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from told import tell

rng = np.random.default_rng(0)
x, y = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((16, 3)).astype(np.float32)
params = {"w": jnp.asarray(rng.standard_normal((8, 3)).astype(np.float32)), "b": jnp.zeros(3)}


def loss_of(p):
    return optax.huber_loss(x @ p["w"] + p["b"], y).mean()


schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)
OPTIMIZERS = {
    "adamw": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(schedule)),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=2),
    "steps": optax.MultiSteps(optax.sgd(0.1, momentum=0.9, nesterov=True), every_k_schedule=2),
    "injected": optax.inject_hyperparams(optax.rmsprop)(learning_rate=schedule),
    "lbfgs": optax.lbfgs(),
}
for name, optimizer in OPTIMIZERS.items():
    state, p = optimizer.init(params), params

    def step(p, state, optimizer=optimizer, name=name):
        loss, grads = jax.value_and_grad(loss_of)(p)
        more = {"value": loss, "grad": grads, "value_fn": loss_of} if name == "lbfgs" else {}
        updates, state = optimizer.update(grads, state, p, **more)
        return optax.apply_updates(p, updates), state, loss

    jitted = jax.jit(step, donate_argnums=() if name == "lbfgs" else 1)  # its state holds one array twice
    for run in (step if name == "adamw" else jitted, jitted, jitted):
        p, state, loss = run(p, state)
    tell(**{name: (p, loss)})
