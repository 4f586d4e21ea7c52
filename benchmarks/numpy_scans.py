"""Running totals, searches, counts and reductions of NumPy programs: processor time beside NumPy's, in turn, and what
two devices send.

Processor time is that of all threads: other programs on the machine do not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P

ROUNDS, SIZE = 7, 1 << 22
EDGES = np.linspace(-4, 4, 65)


def _normal(size: int = SIZE) -> Any:
    return np.random.default_rng(0).standard_normal(size)


def nine(x: Any) -> Any:
    norm = np.sqrt(np.sum(x * x))
    return np.sum(x), np.min(x), np.max(x), np.mean(x), np.var(x), norm, np.argmax(x), np.any(x > 3), np.cumsum(x)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "cumsum": (np.cumsum, _normal),
    "cumsum of rows, 2048x2048": (lambda x: np.cumsum(x, axis=1), lambda: _normal().reshape(2048, 2048)),
    "cumsum of columns, 2048x2048": (lambda x: np.cumsum(x, axis=0), lambda: _normal().reshape(2048, 2048)),
    "maximum.accumulate": (np.maximum.accumulate, _normal),
    "searchsorted, 65 edges": (lambda x: np.searchsorted(EDGES, x), _normal),
    "digitize, 65 edges": (lambda x: np.digitize(x, EDGES), _normal),
    "histogram, 64 bins in a range": (lambda x: np.histogram(x, 64, range=(-4, 4))[0], _normal),
    "histogram, 65 edges": (lambda x: np.histogram(x, EDGES)[0], _normal),
    "bincount, 1000 bins": (
        lambda x: np.bincount(x, minlength=1000),
        lambda: np.random.default_rng(0).integers(0, 1000, SIZE),
    ),
    "nine reductions, 32 Mi": (nine, lambda: _normal(8 * SIZE)),
}


def measure(name: str) -> tuple[float, float, int, int]:
    """Median processor seconds, ours and NumPy's; bytes that one of two devices sends, and its peak."""
    function, make = CASES[name]
    x = make()
    program = shardc.trace(function, x)
    compiled = program.compile()
    placed = compiled.driver.put(0, x)
    pairs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        compiled(placed)
        middle = time.process_time()
        function(x)
        pairs.append((middle - start, time.process_time() - middle))
    split = program.annotate({program.module.parameters[0].name: P("x")}, mesh=Mesh({"x": 2})).partition().report()
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    return ours, theirs, split["wire_bytes"], split["peak_bytes"]


def rows() -> list[tuple[str, ...]]:
    """(what, ours, NumPy, ratio, bytes sent, peak over the shard) as text."""
    out = []
    for name in CASES:
        ours, theirs, sent, peak = measure(name)
        out.append(
            (
                name,
                f"{ours * 1e3:.1f} ms",
                f"{theirs * 1e3:.1f} ms",
                f"{theirs / ours:.1f}",
                f"{sent:,}",
                f"{peak / 1e6:.1f} MB",
            )
        )
    return out


if __name__ == "__main__":
    for row in rows():
        print(*row, sep="  ")
