"""Programs as people write them in NumPy, traced as they are: evaluated and compiled, NumPy's answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from tests.hlo.numpy.trace_support import agree, compile_and_run, leaves_of, traced

RNG = np.random.default_rng(0)


def normal(*dims: int, dtype: str = "f8") -> Any:
    return RNG.normal(size=dims).astype(dtype)


def kmeans(x: Any, centres: Any) -> Any:
    for _ in range(3):
        nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(axis=1)
        member = (nearest[:, None] == np.arange(len(centres))).astype(x.dtype)
        centres = member.T @ x / np.maximum(member.sum(0), 1)[:, None]
    return nearest, centres


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = np.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    scores[..., np.triu(np.ones((q.shape[1], k.shape[1]), bool), 1)] = -1e9
    scores -= scores.max(-1, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weights, v)


def cross_entropy(logits: Any, labels: Any) -> Any:
    n = len(logits)
    z = logits - logits.max(axis=1, keepdims=True)
    loss = np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(n), labels])
    gradient = np.exp(z)
    gradient /= gradient.sum(1, keepdims=True)
    gradient[np.arange(n), labels] -= 1
    return loss, gradient / n


def embedding(table: Any, ids: Any, gradient: Any) -> Any:
    total = np.zeros_like(table)
    np.add.at(total, ids, gradient)
    return table[ids], table - 0.1 * total


def factorise(a: Any) -> Any:
    """Gaussian elimination in place."""
    n = len(a)
    low, up = np.eye(n, like=a), a.copy()
    for k in range(n - 1):
        low[k + 1 :, k] = up[k + 1 :, k] / up[k, k]
        up[k + 1 :] -= low[k + 1 :, k : k + 1] * up[k]
    return low, up


def life(grid: Any) -> Any:
    for _ in range(3):
        near = sum(np.roll(grid, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        grid = ((near == 3) | ((grid == 1) & (near == 2))).astype(grid.dtype)
    return grid


def jacobi(u: Any, f: Any) -> Any:
    for _ in range(4):
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - f[1:-1, 1:-1])
        u = new
    return u


def lstm(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    hidden = []
    for row in x:
        i, f, o, g = np.split(row @ w + h @ u + b, 4, axis=-1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        hidden.append(h)
    return np.stack(hidden), (h, c)


def adam(params: Any, gradients: Any, first: Any, second: Any, step: Any) -> Any:
    for k, g in gradients.items():
        first[k] = 0.9 * first[k] + 0.1 * g
        second[k] = 0.999 * second[k] + 0.001 * g**2
        params[k] -= 0.01 * (first[k] / (1 - 0.9**step)) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
    return params, first, second, step + 1


def principal(x: Any) -> Any:
    x = x - x.mean(0)
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False))
    return values[::-1][:2], np.abs(x @ vectors[:, ::-1][:, :2])


def mandelbrot(c: Any) -> Any:
    z, count = np.zeros_like(c), np.zeros(c.shape, int, like=c)
    for _ in range(10):
        alive = np.abs(z) <= 2
        z = np.where(alive, z * z + c, z)
        count += alive
    return count


def orthonormal(a: Any) -> Any:
    q = np.zeros_like(a)
    for j in range(a.shape[1]):
        v = a[:, j].copy()
        for i in range(j):
            v -= np.dot(q[:, i], a[:, j]) * q[:, i]
        q[:, j] = v / np.linalg.norm(v)
    return q


def convolution(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], axis=(1, 2))
    out = np.tensordot(windows, w, axes=([4, 5, 3], [0, 1, 2]))
    n, h, v, c = out.shape
    return np.maximum(out.reshape(n, h // 2, 2, v // 2, 2, c).max(axis=(2, 4)), 0)


def kalman(x: Any, p: Any, z: Any, f: Any, h: Any) -> Any:
    for seen in z:
        x, p = f @ x, f @ p @ f.T + 0.1 * np.eye(2)
        gain = p @ h.T @ np.linalg.inv(h @ p @ h.T + np.eye(1))
        x, p = x + gain @ (seen - h @ x), (np.eye(2) - gain @ h) @ p
    return x, p


def largest(x: Any) -> Any:
    places = np.argsort(-x, kind="stable")[:3]
    return x[places], places


def operators(x: Any, s: Any) -> Any:
    total = 0.0
    for row in x:
        total += row.sum() * s
    mixed = np.ones(4) * x[0] + np.float64(2) * x[1], np.ones((5, 4)) @ x, np.ones(4) < x[0]
    return total, mixed, 2**x, divmod(x, 3), ~(x > 0), -x, +x, x // 2, 7 % x, abs(-x), len(x), x.ndim


def state(scale: float) -> dict[str, Any]:
    return {"a": scale * normal(3, 2, dtype="f4"), "b": scale * normal(2, dtype="f4")}


PROGRAMS: list[tuple[Callable[..., Any], list[Any]]] = [
    (kmeans, [normal(20, 3), normal(4, 3)]),
    (attention, [normal(2, 5, 2, 4, dtype="f4")] * 3),
    (cross_entropy, [normal(6, 5), RNG.integers(0, 5, 6)]),
    (embedding, [normal(7, 3), RNG.integers(0, 7, (4, 2)), normal(4, 2, 3)]),
    (factorise, [normal(4, 4) + 4 * np.eye(4)]),
    (life, [RNG.integers(0, 2, (6, 7))]),
    (jacobi, [normal(6, 7), normal(6, 7)]),
    (lstm, [normal(4, 2, 3), normal(2, 5), normal(2, 5), normal(3, 20), normal(5, 20), normal(20)]),
    (adam, [state(1), state(1), state(0), state(0), 1]),
    (principal, [normal(10, 4)]),
    (mandelbrot, [normal(5, 4) + 1j * normal(5, 4)]),
    (orthonormal, [normal(5, 3)]),
    (convolution, [normal(2, 6, 6, 3), normal(3, 3, 3, 4)]),
    (kalman, [normal(2), np.eye(2), normal(3, 1), np.array([[1, 0.1], [0, 1]]), np.array([[1.0, 0]])]),
    (largest, [normal(9)]),
    (operators, [np.abs(normal(4, 4)), 2.0]),
]


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_program(function: Callable[..., Any], args: list[Any]) -> None:
    wanted = leaves_of(function(*copy.deepcopy(args)))
    made = traced(function, args)
    evaluated = evaluate(made.module, [np.asarray(v) for v in made.flatten(args)])
    for kind, results in (("evaluated", evaluated), ("compiled", compile_and_run(made, args))):
        for got, w in zip(results, wanted, strict=True):
            agree(got, w, 128, f"{function.__name__} {kind}")
