"""`shardc.jit` of functions that name meshes of XLA's own devices inside; run where JAX has these by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import shardc
from shardc import Mesh, P

X = np.random.default_rng(5).normal(size=(8, 8)).astype(np.float32)
MESH = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
OURS = Mesh({"x": 2, "y": 2})


@partial(jax.shard_map, mesh=MESH, in_specs=PartitionSpec("x"), out_specs=PartitionSpec())
def summed(v: Any) -> Any:
    once = jax.lax.psum(v, "x")
    return jax.lax.scan(lambda c, _: (jnp.sin(c) + once, None), once, None, length=3)[0]


def constrained(v: Any) -> Any:
    return jax.lax.with_sharding_constraint(jnp.tanh(v) @ v, NamedSharding(MESH, PartitionSpec("x", "y")))


def nested(v: Any) -> Any:
    return jax.jit(constrained, out_shardings=NamedSharding(MESH, PartitionSpec("y")))(v) * 2


def of_static(v: Any, name: str) -> Any:
    return {"summed": summed, "constrained": constrained}[name](v)


def gradient(function: Any) -> Any:
    return jax.grad(lambda v: function(v).sum())


def check(function: Any, argument: Any) -> None:
    """Its results and gradients are JAX's, on our four devices."""
    want, slope = jax.jit(function)(argument), jax.jit(gradient(function))(argument)
    for options in ({}, {"mesh": OURS}, {"mesh": MESH}, {"mesh": OURS, "in_shardings": P()}):
        jitted = shardc.jit(function, **options)
        got = jitted(argument)
        assert {d.device_kind for d in got.devices()} == {"shardc"}, (function, options)
        assert len(got.devices()) == 4, (function, options)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(gradient(jitted)(jnp.asarray(argument)), slope, rtol=2e-5, atol=1e-5)


assert jax.devices()[0].device_kind == "cpu"
check(summed, X)
check(constrained, X)
check(nested, X)
check(gradient(summed), X)
check(jax.vmap(constrained), X[None])
static = shardc.jit(of_static, static_argnums=1)
np.testing.assert_allclose(static(X, "summed"), jax.jit(summed)(X), rtol=2e-5)
np.testing.assert_allclose(static(X, "constrained"), jax.jit(constrained)(X), rtol=2e-5, atol=1e-6)
print("done")
