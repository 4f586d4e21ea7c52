"""Linear algebra of JAX on split matrices: values, gradients and what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
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
    "qr of scipy": lambda a, b: jsl.qr(a, mode="economic"),
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


def _likelihood(a: Any, b: Any) -> Any:
    """Of a Gaussian process, up to a constant."""
    factor = jnp.linalg.cholesky(a)
    return -0.5 * b @ jsl.cho_solve((factor, True), b) - jnp.sum(jnp.log(jnp.diagonal(factor)))


#: Functions of a positive definite matrix and a vector, both split by rows, and the largest array that is gathered.
OF_POSITIVE: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "cholesky": (lambda a, b: jnp.linalg.cholesky(a), 256 * 32),
    "likelihood": (_likelihood, 256 * 32),
    "gradient of the likelihood": (jax.grad(_likelihood), 256 * 260),
    "lower system": (lambda a, b: jsl.solve_triangular(a, b, lower=True), 0),
    "upper system, transposed": (lambda a, b: jsl.solve_triangular(a, b, trans=1), 0),
}


@pytest.mark.parametrize("name", OF_POSITIVE)
def test_positive_definite_matrices(name: str) -> None:
    with jax.enable_x64(True):
        function, most = OF_POSITIVE[name]
        a = RNG.standard_normal((256, 256))
        args = (a @ a.T / 256 + np.eye(256), RNG.standard_normal(256))
        got = shardc.jit(function, mesh=MESH, in_shardings=P("d"))(*args)
        assert_same(got, jax.jit(function)(*args))
    report = shardc.last_compiled().partitioned().report()
    gathers = [c["payload_bytes"] for c in report["collectives"] if c["op"] == "all-gather"]
    assert max(gathers, default=0) <= 8 * most


#: Functions of a square matrix and a vector, both split by rows.
OF_SQUARE: dict[str, Callable[[Any, Any], Any]] = {
    "lu": lambda a, b: jsl.lu_factor(a),
    "solve": jnp.linalg.solve,
    "gradient of solve": jax.grad(lambda a, b: jnp.sum(jnp.linalg.solve(a, b) ** 2)),
    "logarithm of the determinant": lambda a, b: jnp.linalg.slogdet(a)[1],
}


@pytest.mark.parametrize("name", OF_SQUARE)
def test_square_matrices(name: str) -> None:
    with jax.enable_x64(True):
        function, n = OF_SQUARE[name], 256
        args = (RNG.standard_normal((n, n)) + 8 * np.eye(n), RNG.standard_normal(n))
        got = shardc.jit(function, mesh=MESH, in_shardings=P("d"))(*args)
        assert_same(got, jax.jit(function)(*args))
    report = shardc.last_compiled().partitioned().report()
    gathers = [c["payload_bytes"] for c in report["collectives"] if c["op"] == "all-gather"]
    assert max(gathers) <= 8 * n * n // 8
