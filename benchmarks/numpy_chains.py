"""Chains of NumPy operations bound by memory: shardc.trace against NumPy op by op, in one process, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shardc

ROUNDS = 9


def _arrays(count: int, size: int = 1 << 22) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(count)]


def polynomial(x: Any) -> Any:
    return (((x * 0.3 + 1.0) * x - 2.0) * x + 0.5) * x


def update(p: Any, g: Any, m: Any) -> Any:
    """Momentum and a clipped step."""
    m = 0.9 * m + 0.1 * g
    return p - 0.01 * np.clip(m, -1.0, 1.0) - 1e-4 * p


def standardise(x: Any) -> Any:
    rows = x.reshape(-1, 1024)
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def distance(x: Any, y: Any) -> Any:
    return np.sqrt(((x - y) ** 2).sum())


CHAINS: dict[str, tuple[Callable[..., Any], int]] = {
    "polynomial": (polynomial, 1),
    "momentum update": (update, 3),
    "standardise rows": (standardise, 1),
    "distance": (distance, 2),
}


def measure(name: str) -> tuple[float, float, float]:
    """Median seconds: ours, NumPy's; and the median ratio NumPy over ours."""
    function, count = CHAINS[name]
    arrays = _arrays(count)
    compiled = shardc.trace(function, *arrays).compile()
    placed = [compiled.driver.put(k, a) for k, a in enumerate(arrays)]
    np.testing.assert_allclose(np.asarray(compiled(*placed)), function(*arrays), rtol=1e-3, atol=1e-4)
    pairs = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        compiled(*placed)
        middle = time.perf_counter()
        function(*arrays)
        pairs.append((middle - start, time.perf_counter() - middle))
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(theirs), statistics.median(b / a for a, b in pairs)


def rows() -> list[tuple[str, str, str, str]]:
    """(chain, ours, NumPy, ratio) as text."""
    out = []
    for name in CHAINS:
        ours, theirs, ratio = measure(name)
        out.append((name, f"{ours * 1e3:.2f} ms", f"{theirs * 1e3:.2f} ms", f"{ratio:.1f}"))
    return out


if __name__ == "__main__":
    for row in rows():
        print(*row, sep="  ")
