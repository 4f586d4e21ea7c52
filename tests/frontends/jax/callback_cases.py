"""Functions that call Python in every way that JAX has; ``log`` gets what each call was given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

Log = Callable[..., None]
Make = Callable[[Log], Callable[..., Any]]

X = np.arange(8, dtype=np.float32).reshape(4, 2)


def like(x: Any, dtype: Any = None) -> Any:
    return jax.ShapeDtypeStruct(x.shape, dtype or x.dtype)


def scalar(dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct((), dtype)


def told(log: Log, f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, which tells of its operands."""

    def called(*operands: Any) -> Any:
        log(*operands)
        return f(*operands)

    return called


def _debug(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        jax.debug.callback(log, x, ordered=True)
        jax.debug.callback(log, x * 2, ordered=True)
        return x + 1

    return f


def _nothing(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        @jax.jit
        def inner(x: Any) -> Any:
            jax.debug.callback(log)
            io_callback(log, None, ordered=True)
            return x + io_callback(told(log, lambda: np.float32(2)), scalar())

        return inner(inner(x))

    return f


def _pure(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        def many(x: Any) -> Any:
            x = np.asarray(x)
            return x.sum() > 3, *(x.astype(d) for d in types), x[:0]

        types = (np.float32, np.int8, np.complex64, jnp.bfloat16)
        shapes = (scalar(bool), *(like(x, d) for d in types), jax.ShapeDtypeStruct((0, 2), x.dtype))
        return jax.pure_callback(told(log, many), shapes, x)

    return f


def _unused(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        jax.pure_callback(told(log, np.sin), like(x), x)
        return x

    return f


def _twice(log: Log) -> Callable[..., Any]:
    """Equal calls with effects are two calls."""

    def f(x: Any) -> Any:
        count = told(log, lambda x: np.float32(1))
        return io_callback(count, scalar(), x), io_callback(count, scalar(), x)

    return f


def _signs(log: Log) -> Callable[..., Any]:
    """Results come as they are: negative zeros, infinities."""

    def f(x: Any) -> Any:
        values = np.array([-0.0, 0.0, -np.inf, np.inf, 1e-45, 3], np.float32)
        y = io_callback(told(log, lambda x: values), like(values), x)
        return y, 1 / y

    return f


def _scan(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            jax.debug.callback(log, carry, ordered=True)
            y = io_callback(told(log, lambda r: np.float32(np.sum(r))), scalar(), row, ordered=True)
            return carry + y, y

        return lax.scan(body, jnp.float32(0), x)

    return f


def _while(log: Log) -> Callable[..., Any]:
    """Python says when it is over."""

    def f(x: Any) -> Any:
        def more(state: Any) -> Any:
            return io_callback(told(log, lambda k: np.asarray(k) < 3), scalar(bool), state[0], ordered=True)

        def body(state: Any) -> Any:
            return state[0] + 1, jax.pure_callback(told(log, lambda y: np.asarray(y) * 2), like(x), state[1])

        return lax.while_loop(more, body, (jnp.int32(0), x))

    return f


def _cond(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        def branch(factor: float) -> Callable[..., Any]:
            scaled = told(log, lambda x: np.asarray(x) * np.float32(factor))
            return lambda x: io_callback(scaled, like(x), x, ordered=True)

        total = x.sum()
        y = lax.cond(total > 3, branch(2), branch(3), x)
        z = lax.switch(jnp.int32(total) % 3, [branch(4), lambda x: x, branch(5)], y)
        return z, lax.cond(total < 3, branch(6), lambda x: x, x)

    return f


def _nested(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        @jax.jit
        def inner(x: Any, k: Any) -> Any:
            jax.debug.callback(log, k, ordered=True)
            return x + 1

        def body(k: Any, x: Any) -> Any:
            return lax.fori_loop(0, k, lambda j, x: inner(x, 10 * k + j), x)

        return inner(inner(lax.fori_loop(0, 3, body, x), 100), 200)

    return f


def _vmap(method: str) -> Make:
    def make(log: Log) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            def plus(a: Any, b: Any) -> Any:
                return np.asarray(a) + np.reshape(b, np.shape(b) + (1,) * (np.ndim(a) - np.ndim(b)))

            add = told(log, plus)
            one = lambda row, k: jax.pure_callback(add, like(row), row, k, vmap_method=method)  # noqa: E731
            return jax.vmap(one, in_axes=(0, None))(x, jnp.float32(3))

        return f

    return make


def _vmapped_effects(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        def one(row: Any) -> Any:
            jax.debug.callback(log, row)
            return io_callback(told(log, lambda r: np.float32(np.sum(r))), scalar(), row)

        return jax.vmap(one)(x)

    return f


def _gradient(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        @jax.checkpoint
        def layer(x: Any) -> Any:
            jax.debug.callback(log, x.sum())
            return jnp.sin(x)

        return jax.grad(lambda x: layer(layer(x)).sum())(x)

    return f


def _solve(log: Log) -> Callable[..., Any]:
    """Calls where jaxprs are named in a tuple of their own."""

    def f(x: Any) -> Any:
        def matvec(v: Any) -> Any:
            return 2 * v

        def solve(_: Any, b: Any) -> Any:
            return jax.pure_callback(told(log, lambda b: np.asarray(b) / 2), like(b), b)

        return lax.custom_linear_solve(matvec, x, solve, symmetric=True)

    return f


def _constants(log: Log) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        jax.debug.callback(log, np.arange(3), 4, ordered=True)
        return x * jax.pure_callback(told(log, lambda a: np.asarray(a) + 1), scalar(), jnp.float32(1))

    return f


def _between(log: Log) -> Callable[..., Any]:
    """Between products that need all devices."""

    def f(x: Any) -> Any:
        a = x @ x.T
        jax.debug.callback(log, a.sum(0), ordered=True)
        b = a @ jax.pure_callback(told(log, lambda a: np.asarray(a) - 1), like(a), a)
        jax.debug.callback(log, b, ordered=True)
        return b.sum(0) @ x

    return f


CASES: Mapping[str, Make] = {
    "debug": _debug,
    "no operands": _nothing,
    "pure": _pure,
    "unused": _unused,
    "twice": _twice,
    "signs": _signs,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "nested": _nested,
    **{f"vmap {m}": _vmap(m) for m in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")},
    "vmapped effects": _vmapped_effects,
    "gradient": _gradient,
    "solve": _solve,
    "constants": _constants,
    "between": _between,
}


def random_program(seed: int, log: Log) -> Callable[..., Any]:
    """Loops, branches and functions around ordered calls of two kinds, and what needs all devices between them."""
    rng = np.random.default_rng(seed)
    number = iter(range(1000))

    def drawn(depth: int) -> list[Any]:
        """A kind, a number and what is inside, for each part; JAX may trace a part more than once."""
        kinds = rng.integers(0, 7 if depth else 3, int(rng.integers(1, 4)))
        inside = [[drawn(depth - 1), drawn(depth - 1)] if k > 2 else [] for k in kinds]
        return [(int(k), next(number), i) for k, i in zip(kinds, inside, strict=True)]

    def look(x: Any, k: int) -> Any:
        io_callback(lambda: log(k), None, ordered=True)
        return x

    def ask(x: Any, k: int) -> Any:
        answer = told(log, lambda k, s: np.float32(np.asarray(s) % 7))
        return (x + io_callback(answer, scalar(), k, x.sum(), ordered=True)) % 13

    def mix(x: Any, k: int) -> Any:
        return (x @ jnp.ones((2, 2), x.dtype) + jnp.flip(x, 0)) % 11

    def run(parts: list[Any], x: Any) -> Any:
        for kind, k, inside in parts:
            bodies = [functools.partial(run, i) for i in inside]
            if kind < 3:
                x = (look, ask, mix)[kind](x, k)
            elif kind == 3:
                x = lax.fori_loop(0, 1 + k % 3, lambda _, y, body=bodies[0]: body(y), x)
            elif kind == 4:
                x = lax.cond(x.sum() % 2 < 1, *bodies, x)
            elif kind == 5:
                inner = jax.jit(bodies[0])
                x = inner(inner(x))
            else:
                x, extra = lax.scan(lambda y, row, body=bodies[0]: (body(y), row.sum()), x, x)
                x = (x + extra[:, None]) % 13
        return x

    parts = [(1, 998, []), *drawn(3), (0, 999, [])]
    return lambda x: run(parts, x)
