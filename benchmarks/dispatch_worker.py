"""A side of the dispatch table: JAX on the platform of ``JAX_PLATFORMS``. A case in, microseconds of a call out."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

if os.environ["JAX_PLATFORMS"] == "shardc":
    from shardc.frontends.pjrt import plugin

    plugin.initialize()

import jax

#: Seconds of a round.
ROUND = 0.4


def plain(count: int) -> Callable[[], Any]:
    """``count`` arguments and results on one device."""
    return _call(count, lambda: jax.numpy.ones(8))


def spread(count: int, devices: int) -> Callable[[], Any]:
    """The same on several devices, with a sum over all of them."""
    sharding = jax.NamedSharding(jax.make_mesh((devices,), ("d",)), jax.P("d"))
    return _call(count, lambda: jax.device_put(np.ones(8 * devices, np.float32), sharding))


def _call(count: int, make: Callable[[], Any]) -> Callable[[], Any]:
    function = jax.jit(lambda *x: [x[0] * 2 + x[0].sum(), *(a + 1 for a in x[1:])])
    given = [make() for _ in range(count)]
    return lambda: function(*given)


def to_numpy() -> Callable[[], Any]:
    call = plain(1)
    return lambda: np.asarray(call()[0])


def from_numpy() -> Callable[[], Any]:
    value = np.ones(16, np.float32)
    return lambda: jax.device_put(value)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "tiny": lambda: plain(1),
    "10": lambda: plain(10),
    "300": lambda: plain(300),
    "tiny on 4": lambda: spread(1, 4),
    "10 on 4": lambda: spread(10, 4),
    "300 on 8": lambda: spread(300, 8),
    "np.asarray": to_numpy,
    "device_put": from_numpy,
}


def main() -> None:
    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in calls:
            calls[name] = CASES[name]()
            for _ in range(20):
                jax.block_until_ready(calls[name]())
        call, taken = calls[name], []
        end = time.perf_counter() + ROUND
        while time.perf_counter() < end:
            start = time.perf_counter()
            jax.block_until_ready(call())
            taken.append(time.perf_counter() - start)
        print(json.dumps({"microseconds": 1e6 * statistics.median(taken)}), flush=True)


if __name__ == "__main__":
    main()
