"""Calls of NumPy that arrays and NumPy arrays must answer alike: on virtual devices and on ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: What is computed of x (f64[9,6]), y (f64[9,6]), k (i32[9]), and the vector v (f64[6]).
VALUES: dict[str, Callable[..., Any]] = {
    "operators": lambda x, y, k, v: (x + y) * 2 - x / (1 + y**2),
    "reflected": lambda x, y, k, v: 1 - x + np.ones(6) * y,
    "vectors": lambda x, y, k, v: x * v + v,
    "comparisons": lambda x, y, k, v: (x > y) & ~(x < 0.2),
    "integers": lambda x, y, k, v: (k // 2, k % 3, -k, k << 1, k + 3, k**2),
    "mixed types": lambda x, y, k, v: (k * 0.5, k + np.float32(1), k[:, None] * x),
    "ufuncs": lambda x, y, k, v: np.exp(x) + np.maximum(x, y) + np.hypot(x, y),
    "ufunc methods": lambda x, y, k, v: (np.add.reduce(x, axis=0), np.add.accumulate(x, axis=1)),
    "two results": lambda x, y, k, v: np.modf(x * 3),
    "matmul": lambda x, y, k, v: (x @ v, x.T @ y, np.dot(x, v), x @ y.T),
    "sums": lambda x, y, k, v: (x.sum(), x.sum(axis=0), x.mean(axis=1, keepdims=True), np.sum(x, axis=(0, 1))),
    "statistics": lambda x, y, k, v: (x.std(), x.var(axis=0), x.min(), x.max(axis=1), np.median(x), np.ptp(x)),
    "positions": lambda x, y, k, v: (x.argmax(), x.argmin(axis=0), np.argsort(v)),
    "slices": lambda x, y, k, v: (x[1:] - x[:-1], x[::2, 1:-1], x[2], x[-1, 3], x[..., None], x[::-1]),
    "positions in arrays": lambda x, y, k, v: (x[[0, 2, 5]], x[np.array([3, 1])], x[k % 9], np.take(x, [1, 1], axis=1)),
    "shapes": lambda x, y, k, v: (x.reshape(6, 9), x.ravel(), x.T, x.swapaxes(0, 1), x[None].squeeze(), x.flatten()),
    "joined": lambda x, y, k, v: (np.concatenate([x, y]), np.stack([x, y]), np.hstack([x, x]), np.roll(x, 2, axis=0)),
    "split": lambda x, y, k, v: np.split(x, 3),
    "chosen": lambda x, y, k, v: (np.where(x > y, x, 0.0), np.clip(x, 0.2, 0.8), np.select([x > 0.5], [y], 1.5)),
    "cumulative": lambda x, y, k, v: (x.cumsum(axis=0), np.diff(x, axis=0), k.cumsum()),
    "sorted": lambda x, y, k, v: (np.sort(x, axis=1), np.sort(k)),
    "linalg": lambda x, y, k, v: (np.linalg.norm(x), np.linalg.solve(x[:6] + 6 * np.eye(6), v)),
    "types": lambda x, y, k, v: (x.astype("float32"), k.astype(bool), x.real, (x + 1j * y).imag, x.dtype.name),
    "without a program": lambda x, y, k, v: (np.shape(x), np.ndim(x), np.size(x), x.ndim, len(x), x.itemsize),
    "likes": lambda x, y, k, v: (np.zeros_like(x), np.full_like(x, 2.5), np.ones_like(k), np.zeros(3, like=x)),
    "rows": lambda x, y, k, v: [row.sum() for row in x],
    "scalars": lambda x, y, k, v: (float(x.sum()) > 0, x.sum() * 2 + 1, np.sqrt(x.max()), f"{k.sum():d}", 3 in k),
    "einsum": lambda x, y, k, v: np.einsum("ij,kj->ik", x, y),
    "fft": lambda x, y, k, v: np.fft.fft(x, axis=1),
    "of values": lambda x, y, k, v: (np.unique(k), x[x > 0.5], np.nonzero(k)),
    "nan": lambda x, y, k, v: (np.nansum(np.where(x > 0.5, np.nan, x)), np.isfinite(x).all()),
}


def _interior(x: Any, y: Any) -> Any:
    x[1:-1, 1:-1] += 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] - 2 * x[1:-1, 1:-1])
    return x


def _row(x: Any, y: Any) -> Any:
    row = x[3]
    row *= 2
    row[1:] = 7
    x[0] = row
    return x, row


def _views_of_views(x: Any, y: Any) -> Any:
    part = x[2:8].T[1:]
    part[0] = -1
    part += y[2:8].T[1:]
    return x, part


def _read_after_change(x: Any, y: Any) -> Any:
    part = x[1:4]
    first = part.sum() + part.max()
    x *= 3
    return first, part, part.sum()


def _masked(x: Any, y: Any) -> Any:
    x[x > 0.5] = 0
    x[y > 0.9] = y[0, 0]
    return x


def _out(x: Any, y: Any) -> Any:
    result = np.add(x, y, out=x)
    assert result is x
    np.multiply(x, 2, out=y)
    np.copyto(x, 1.5, where=y > 1)
    return x, y


def _aliases(x: Any, y: Any) -> Any:
    same = x
    x += x
    x[1:] = x[:-1]
    return x, same


def _methods(x: Any, y: Any) -> Any:
    x.sort(axis=0)
    y.fill(3)
    y[0, 0] = 1
    np.add.at(y, (np.array([1, 1]), np.array([2, 2])), 1.0)
    return x, y


def _scalar(x: Any, y: Any) -> Any:
    total = x.sum()
    before = total
    total += 1
    total *= x.max()
    return before, total


def _reshaped(x: Any, y: Any) -> Any:
    x.reshape(-1)[::7] = 0
    x.T[2] += 1
    return x


def _left_alone(x: Any, y: Any) -> Any:
    copy = x.copy()
    again = x[2:5] * 1
    x[...] = y
    return copy, again, x


_ALL = (_interior, _row, _views_of_views, _read_after_change, _masked, _out, _aliases, _methods, _scalar)
CHANGES: dict[str, Callable[..., Any]] = {f.__name__.strip("_"): f for f in (*_ALL, _reshaped, _left_alone)}


def samples(seed: int) -> tuple[Any, ...]:
    """The arrays of the cases."""
    rng = np.random.default_rng(seed)
    return rng.random((9, 6)), rng.random((9, 6)), rng.integers(0, 50, 9, dtype=np.int32), rng.random(6)
