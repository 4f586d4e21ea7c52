"""Training steps of networks, written with flax, haiku, equinox and penzai, trained with optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from library_cases import LibraryProgram, batched, columns

__all__ = ["PROGRAMS"]

Made = tuple[Callable[..., Any], tuple[Any, ...]]
R = np.random.default_rng(0)
IMAGES = R.standard_normal((8, 8, 8, 3)).astype(np.float32)
LABELS = R.integers(0, 10, 8).astype(np.int32)
VECTORS = R.standard_normal((8, 16)).astype(np.float32)
TOKENS = R.integers(0, 32, (8, 12)).astype(np.int32)


def _trained(apply: Callable[[Any, Any], Any], params: Any, inputs: Any, labels: Any, optimizer: Any) -> Made:
    """One step of an optimizer on the cross-entropy of ``apply(params, inputs)``."""
    import optax

    state = optimizer.init(params)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), y).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, new = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), new, value

    return step, (params, state, inputs, labels)


def flax_mlp() -> Made:
    import optax
    from flax import linen as nn

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for width in (32, 32):
                x = nn.LayerNorm()(nn.gelu(nn.Dense(width)(x)))
            return nn.Dense(10)(x)

    model = Mlp()
    return _trained(model.apply, model.init(jax.random.key(0), VECTORS), VECTORS, LABELS, optax.adamw(1e-2))


def flax_convnet() -> Made:
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.GroupNorm(4)(nn.Conv(16, (3, 3))(x)))
            x = nn.avg_pool(nn.relu(nn.Conv(16, (3, 3), strides=2)(x)), (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    model = Net()
    return _trained(model.apply, model.init(jax.random.key(0), IMAGES), IMAGES, LABELS, optax.sgd(0.1, momentum=0.9))


def flax_batch_norm() -> Made:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3))(x))
            return nn.Dense(10)(nn.max_pool(nn.relu(x), (2, 2), (2, 2)).reshape(x.shape[0], -1))

    model = Net()
    variables = model.init(jax.random.key(0), IMAGES)
    return (lambda v, x: model.apply(v, x, mutable=["batch_stats"])), (variables, IMAGES)


def flax_attention() -> Made:
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(32, 16)(tokens)
            mask = nn.make_causal_mask(tokens)
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(num_heads=4, deterministic=True)(nn.LayerNorm()(x), mask=mask)
                x = x + nn.Dense(16)(nn.swish(nn.Dense(32)(nn.RMSNorm()(x))))
            return nn.Dense(10)(x.mean(1))

    model = Net()
    return _trained(
        model.apply, model.init(jax.random.key(0), TOKENS), TOKENS, LABELS, optax.sgd(0.1, nesterov=True, momentum=0.9)
    )


def flax_lstm() -> Made:
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.RNN(nn.OptimizedLSTMCell(16))(nn.Embed(32, 8)(tokens))
            return nn.Dense(10)(nn.RNN(nn.GRUCell(8))(x)[:, -1])

    model = Net()
    return _trained(model.apply, model.init(jax.random.key(0), TOKENS), TOKENS, LABELS, optax.rmsprop(1e-2))


def flax_dropout() -> Made:
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(10)(nn.Dropout(0.5, deterministic=False)(nn.Dense(32)(x)))

    model = Net()
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, VECTORS)
    return (lambda p, x, k: model.apply(p, x, rngs={"dropout": k})), (params, VECTORS, jax.random.key(2))


def nnx_mlp() -> Made:
    import optax
    from flax import nnx

    class Mlp(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first, self.norm = nnx.Linear(16, 32, rngs=rngs), nnx.LayerNorm(32, rngs=rngs)
            self.second = nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.relu(self.norm(self.first(x))))

    graph, params = nnx.split(Mlp(nnx.Rngs(0)))
    params = nnx.to_pure_dict(params)

    def apply(p: Any, x: Any) -> Any:
        model = nnx.merge(graph, nnx.State(p))
        return model(x)

    return _trained(apply, params, VECTORS, LABELS, optax.adafactor(1e-2))


def haiku_mlp() -> Made:
    import haiku as hk
    import optax

    model = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([32, 32, 10])(2 * x)))
    return _trained(
        model.apply,
        model.init(jax.random.key(0), VECTORS),
        VECTORS,
        LABELS,
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)),
    )


def haiku_resnet() -> Made:
    import haiku as hk

    model = hk.transform_with_state(
        lambda x: hk.nets.ResNet([1, 1, 1, 1], 10, resnet_v2=True, channels_per_group=(8, 8, 16, 16))(
            x, is_training=True
        )
    )
    params, state = model.init(jax.random.key(0), IMAGES)
    return (lambda p, s, x: model.apply(p, s, None, x)), (params, state, IMAGES)


def haiku_lstm() -> Made:
    import haiku as hk

    def net(x: Any) -> Any:
        core = hk.LSTM(16)
        out, state = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.Linear(4)(out), state

    model = hk.without_apply_rng(hk.transform(net))
    data = R.standard_normal((5, 8, 6)).astype(np.float32)
    return model.apply, (model.init(jax.random.key(0), data), data)


def equinox_mlp() -> Made:
    import equinox as eqx
    import optax

    model = eqx.nn.MLP(16, 10, 32, 2, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)

    def apply(p: Any, x: Any) -> Any:
        return jax.vmap(eqx.combine(p, static))(x)

    return _trained(apply, params, VECTORS, LABELS, optax.adabelief(1e-2))


def equinox_convnet() -> Made:
    import equinox as eqx

    k = jax.random.split(jax.random.key(0), 3)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 8, 3, key=k[0]),
            eqx.nn.GroupNorm(2, 8),
            eqx.nn.Lambda(jax.nn.gelu),
            eqx.nn.AvgPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(72, 10, key=k[1]),
        ]
    )
    params, static = eqx.partition(model, eqx.is_array)
    return (lambda p, x: jax.vmap(eqx.combine(p, static))(x)), (params, IMAGES.transpose(0, 3, 1, 2).copy())


def equinox_attention() -> Made:
    import equinox as eqx

    model = eqx.nn.MultiheadAttention(4, 16, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)
    data = R.standard_normal((8, 6, 16)).astype(np.float32)

    def loss(p: Any, x: Any) -> Any:
        return jnp.sum(jax.vmap(lambda r: eqx.combine(p, static)(r, r, r))(x) ** 2)

    return jax.grad(loss), (params, data)


_STEP = (columns, None, batched, batched)
FLAX, HAIKU, EQUINOX = ("flax", "optax"), ("haiku", "optax"), ("equinox", "optax")
PROGRAMS = (
    LibraryProgram("flax mlp", FLAX, flax_mlp, _STEP),
    LibraryProgram("flax convnet", FLAX, flax_convnet, _STEP),
    LibraryProgram("flax batch norm", FLAX, flax_batch_norm, (None, batched)),
    LibraryProgram("flax attention", FLAX, flax_attention, _STEP, 5e-3),
    LibraryProgram("flax lstm", FLAX, flax_lstm, _STEP),
    LibraryProgram("flax dropout", FLAX, flax_dropout, (columns, batched, None)),
    LibraryProgram("flax nnx", FLAX, nnx_mlp, _STEP),
    LibraryProgram("haiku mlp", HAIKU, haiku_mlp, _STEP),
    LibraryProgram("haiku resnet", HAIKU, haiku_resnet, (None, None, batched), 1e-3),
    LibraryProgram("haiku lstm", HAIKU, haiku_lstm, (columns, None)),
    LibraryProgram("equinox mlp", EQUINOX, equinox_mlp, _STEP),
    LibraryProgram("equinox convnet", EQUINOX, equinox_convnet, (None, batched)),
    LibraryProgram("equinox attention", EQUINOX, equinox_attention, (columns, batched)),
)
