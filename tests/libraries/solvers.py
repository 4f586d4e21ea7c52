"""Differential equations, linear and nonlinear solvers, optimizers: diffrax, lineax, optimistix, jaxopt, optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from library_cases import LibraryProgram, batched, columns

__all__ = ["PROGRAMS"]

Made = tuple[Callable[..., Any], tuple[Any, ...]]
R = np.random.default_rng(1)
STARTS = R.standard_normal((8, 3)).astype(np.float32)
MATRIX = (R.standard_normal((8, 8)) + 8 * np.eye(8)).astype(np.float32)
RIGHT = R.standard_normal((8, 4)).astype(np.float32)


def _lorenz(t: Any, y: Any, args: Any) -> Any:
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (2 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def diffrax_adaptive() -> Made:
    import diffrax

    def solve(y: Any) -> Any:
        control = diffrax.PIDController(rtol=1e-4, atol=1e-6)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(_lorenz), diffrax.Tsit5(), 0.0, 0.3, 0.01, y, stepsize_controller=control
        ).ys

    return jax.vmap(solve), (STARTS,)


def diffrax_gradient() -> Made:
    import diffrax

    def loss(w: Any, y: Any) -> Any:
        def solve(start: Any) -> Any:
            term = diffrax.ODETerm(lambda t, x, a: jnp.tanh(w @ x))
            return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.1, start).ys

        return jnp.sum(jax.vmap(solve)(y) ** 2)

    return jax.value_and_grad(loss), (R.standard_normal((3, 3)).astype(np.float32), STARTS)


def diffrax_noise() -> Made:
    import diffrax

    def solve(key: Any, y: Any) -> Any:
        path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(3,), key=key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, x, a: -x), diffrax.ControlTerm(lambda t, x, a: 0.1 * jnp.eye(3), path)
        )
        return diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 0.1, y).ys

    return jax.vmap(solve), (jax.random.split(jax.random.key(0), 8), STARTS)


def lineax_solves() -> Made:
    import lineax as lx

    def solve(a: Any, b: Any) -> Any:
        operator = lx.MatrixLinearOperator(a)
        direct = jax.vmap(lambda c: lx.linear_solve(operator, c).value, 1, 1)(b)
        symmetric = lx.MatrixLinearOperator(a @ a.T, lx.positive_semidefinite_tag)
        return direct, lx.linear_solve(symmetric, b[:, 0], lx.CG(rtol=1e-5, atol=1e-5)).value

    return solve, (MATRIX, RIGHT)


def optimistix_root() -> Made:
    import optimistix as optx

    def solve(y: Any) -> Any:
        return optx.root_find(lambda x, a: x + 0.1 * jnp.sin(x) - a, optx.Newton(rtol=1e-5, atol=1e-5), y, args=y).value

    return jax.vmap(solve), (STARTS,)


def optimistix_least_squares() -> Made:
    import optimistix as optx

    def solve(a: Any, b: Any) -> Any:
        return optx.least_squares(
            lambda x, _: a @ x - b[:, 0], optx.LevenbergMarquardt(rtol=1e-5, atol=1e-5), jnp.zeros(8)
        ).value

    return solve, (MATRIX, RIGHT)


def jaxopt_lbfgs() -> Made:
    import jaxopt

    def solve(a: Any, b: Any) -> Any:
        solver = jaxopt.LBFGS(lambda x: jnp.sum((a @ x - b) ** 2), maxiter=20, implicit_diff=False)
        return solver.run(jnp.zeros((8, 4))).params

    return solve, (MATRIX, RIGHT)


def jaxopt_projected() -> Made:
    import jaxopt

    def solve(a: Any, b: Any) -> Any:
        solver = jaxopt.ProjectedGradient(
            lambda x: jnp.mean((a @ x - b[:, 0]) ** 2), jaxopt.projection.projection_simplex, maxiter=30
        )
        return solver.run(jnp.full(8, 0.125)).params

    return solve, (MATRIX, RIGHT)


def optax_lbfgs() -> Made:
    import optax

    def solve(a: Any, b: Any) -> Any:
        def loss(x: Any) -> Any:
            return jnp.mean((a @ x - b) ** 2)

        optimizer = optax.lbfgs()
        gradient = optax.value_and_grad_from_state(loss)

        def step(_: Any, carry: Any) -> Any:
            x, state = carry
            value, grad = gradient(x, state=state)
            updates, state = optimizer.update(grad, state, x, value=value, grad=grad, value_fn=loss)
            return optax.apply_updates(x, updates), state

        x = jnp.zeros((8, 4))
        return jax.lax.fori_loop(0, 5, step, (x, optimizer.init(x)))[0]

    return solve, (MATRIX, RIGHT)


PROGRAMS = (
    LibraryProgram("diffrax adaptive", ("diffrax",), diffrax_adaptive, (batched,)),
    LibraryProgram("diffrax gradient", ("diffrax",), diffrax_gradient, (None, batched)),
    LibraryProgram("diffrax noise", ("diffrax",), diffrax_noise, (None, batched)),
    LibraryProgram("lineax", ("lineax",), lineax_solves, (batched, columns), 1e-3),
    LibraryProgram("optimistix root", ("optimistix",), optimistix_root, (batched,)),
    LibraryProgram("optimistix least squares", ("optimistix",), optimistix_least_squares, (batched, None), 1e-3),
    LibraryProgram("jaxopt lbfgs", ("jaxopt",), jaxopt_lbfgs, (batched, columns), 1e-2),
    LibraryProgram("jaxopt projected gradient", ("jaxopt",), jaxopt_projected, (columns, None), 1e-3),
    LibraryProgram("optax lbfgs", ("optax",), optax_lbfgs, (columns, batched), 1e-2),
)
