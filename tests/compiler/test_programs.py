"""Programs as JAX users write them, compiled for one device, against the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.compiler.checking import check

jax = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax


def floats(*dims: int, dtype: Any = np.float32) -> Any:
    return jax.ShapeDtypeStruct(dims, dtype)


def mlp(w1: Any, b1: Any, w2: Any, x: Any, y: Any) -> Any:
    def loss(p: Any) -> Any:
        h = jnp.tanh(x @ p[0] + p[1])
        return jnp.mean((h @ p[2] - y) ** 2)

    value, grads = jax.value_and_grad(loss)((w1, b1, w2))
    return value, [p - 0.1 * g for p, g in zip((w1, b1, w2), grads, strict=True)]


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    def f(x: Any, g: Any, b: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return ((x - m) * lax.rsqrt(v + 1e-5) * g + b).sum()

    return jax.grad(f, argnums=(0, 1, 2))(x, g, b)


def attention(q: Any, k: Any, v: Any) -> Any:
    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
        n = s.shape[-1]
        s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)

    return f(q, k, v), jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2))(q, k, v)


def scan_layers(x: Any, ws: Any) -> Any:
    def loss(ws: Any) -> Any:
        h, outs = lax.scan(lambda h, w: ((y := jnp.tanh(h @ w)), y.sum()), x, ws)
        return h.sum() + (outs**2).sum()

    return jax.value_and_grad(loss)(ws)


def while_and_cond(n: Any, x: Any) -> Any:
    def body(c: Any) -> Any:
        i, x = c
        return i + 1, lax.cond(i % 2 == 0, jnp.sin, lambda v: v * 2 + i, x)

    return lax.while_loop(lambda c: c[0] < n, body, (0, x))


def nested(x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        return lax.fori_loop(0, i + 1, lambda j, y: y * 0.5 + j, x + i)

    return lax.fori_loop(0, 4, outer, x)


def switch(k: Any, x: Any) -> Any:
    return lax.switch(k, [jnp.sin, jnp.cos, lambda v: v + 1], x)


def cross_entropy(logits: Any, labels: Any) -> Any:
    def f(logits: Any) -> Any:
        logp = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logp, labels[:, None], axis=1).mean()

    return jax.value_and_grad(f)(logits)


def embedding(table: Any, ids: Any) -> Any:
    return jax.value_and_grad(lambda t: (t[ids] ** 2).sum())(table)


def sorting(x: Any, k: Any) -> Any:
    return jnp.sort(x), jnp.argsort(x, axis=0), lax.sort((k, x), num_keys=1), lax.top_k(x, 3)


def movement(x: Any) -> Any:
    y = jnp.pad(x, ((1, 2), (0, 1)))[::2, ::-1]
    return jnp.concatenate([y, y.T.reshape(y.shape)], 1), jnp.roll(x, 2, 0), jnp.stack([x, x * 2], 1), jnp.cumsum(x, 0)


def reductions(x: Any) -> Any:
    return x.max(0), x.min((0, 2)), x.argmax(1), x.prod(), jnp.var(x, 1), (x > 0).any(2), (x > 0).sum(), jnp.all(x < 9)


def adam(p: Any, m: Any, v: Any, g: Any, t: Any) -> Any:
    t = t + 1
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return p - rate * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v, t


def random_bits(x: Any) -> Any:
    key = jax.random.key(7)
    return jax.random.uniform(key, (5, 3)) + x, jax.random.normal(jax.random.fold_in(key, 1), (4,))


def integers(a: Any, b: Any) -> Any:
    d = jnp.maximum(b, 1)
    return a + b, a * b, a // d, a % d, a << 2, a ^ b, jnp.minimum(a, b), a.astype(jnp.float32)


def donated(x: Any, y: Any) -> Any:
    return y + 1, x * y


INT = np.int32
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, (floats(9, 17), floats(17), floats(17, 3), floats(5, 9), floats(5, 3))),
    "layer norm": (layer_norm, (floats(6, 33), floats(33), floats(33))),
    "attention": (attention, (floats(2, 7, 3, 8), floats(2, 7, 3, 8), floats(2, 7, 3, 8))),
    "scan": (scan_layers, (floats(4, 8), floats(5, 8, 8))),
    "while and cond": (while_and_cond, (floats(dtype=INT), floats(11))),
    "nested": (nested, (floats(3, 5),)),
    "switch": (switch, (floats(dtype=INT), floats(5))),
    "cross entropy": (cross_entropy, (floats(6, 10), floats(6, dtype=INT))),
    "embedding": (embedding, (floats(11, 6), floats(4, 3, dtype=INT))),
    "sorting": (sorting, (floats(5, 9), floats(5, 9, dtype=INT))),
    "movement": (movement, (floats(6, 5),)),
    "reductions": (reductions, (floats(4, 6, 10),)),
    "adam": (adam, (floats(7, 13), floats(7, 13), floats(7, 13), floats(7, 13), floats(dtype=INT))),
    "random bits": (random_bits, (floats(3),)),
    "integers": (integers, (floats(9, dtype=INT), floats(9, dtype=INT))),
}  # fmt: skip

HALF: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, tuple(floats(*d, dtype=jnp.bfloat16) for d in ((9, 17), (17,), (17, 3), (5, 9), (5, 3)))),
    "layer norm": (layer_norm, tuple(floats(*d, dtype=np.float16) for d in ((6, 33), (33,), (33,)))),
}


def module_of(function: Callable[..., Any], shapes: tuple[Any, ...], **options: Any) -> Any:
    from shardc.hlo.stablehlo.reader import read_stablehlo

    return read_stablehlo(str(jax.jit(function, **options).lower(*shapes).as_text()))


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    check(module_of(*CASES[name]))


@pytest.mark.parametrize("name", HALF)
def test_program_in_half_precision(name: str) -> None:
    check(module_of(*HALF[name]), tolerance=0.05)


def test_donation_reaches_the_executable() -> None:
    from shardc.compiler.emit.cpu_executable import build_executable
    from shardc.hlo.config import Config
    from shardc.native.llvm.target import host_target

    module = module_of(donated, (floats(9), floats(9)), donate_argnums=(0,))
    executable = build_executable(module, Config(check=True), host_target())
    assert executable.donated == (0,)
    assert [a for _, a in executable.aliases] == [0]
    check(module)
