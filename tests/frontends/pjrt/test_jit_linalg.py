"""Linear algebra of JAX on split matrices: values, gradients and what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P

MESH = Mesh({"d": 8})
RNG = np.random.default_rng(5)
TALL, RHS = RNG.standard_normal((320, 6)), RNG.standard_normal(320)


def _of_qr(a: Any, b: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return jnp.sum((q.T @ b) ** 3) + jnp.sum(r**2 * jnp.arange(6))


#: Functions of a tall matrix and a vector, both split by rows.
OF_TALL: dict[str, Callable[[Any, Any], Any]] = {
    "qr": lambda a, b: jnp.linalg.qr(a),
    "qr of scipy": lambda a, b: jax.scipy.linalg.qr(a, mode="economic"),
    "gradient of qr": jax.value_and_grad(_of_qr),
    "singular values": lambda a, b: jnp.linalg.svd(a, compute_uv=False),
    "gradient of singular values": jax.grad(lambda a, b: jnp.sum(jnp.linalg.svd(a, compute_uv=False) ** 3)),
    "least squares": lambda a, b: jnp.linalg.lstsq(a, b)[0],
    "gradient of least squares": jax.grad(lambda a, b: jnp.sum(jnp.linalg.lstsq(a, b)[0] ** 2)),
    "pseudoinverse": lambda a, b: jnp.linalg.pinv(a) @ b,
}


def wire_bytes() -> int:
    """What the newest program sends."""
    return int(shardc.last_compiled().partitioned().report()["wire_bytes"])


def assert_same(got: Any, want: Any) -> None:
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-10, atol=1e-11 * float(abs(w).max()))


@pytest.mark.parametrize("name", OF_TALL)
def test_tall_matrices(name: str) -> None:
    with jax.enable_x64(True):
        function = OF_TALL[name]
        got = shardc.jit(function, mesh=MESH, in_shardings=P("d"))(TALL, RHS)
        assert_same(got, jax.jit(function)(TALL, RHS))
    assert wire_bytes() < TALL.nbytes / 2
