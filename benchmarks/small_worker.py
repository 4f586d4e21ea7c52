"""A process that starts JAX on a platform and compiles small programs; prints a line of JSON with what took how long.

python benchmarks/small_worker.py start|programs

Started by ``small_programs.py`` with JAX_PLATFORMS set; ``shardc`` may be there as a source tree alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def _seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _register() -> None:
    """What JAX does with an installed plug-in."""
    asked = os.environ.get("JAX_PLATFORMS") == "shardc"
    if asked and not importlib.metadata.entry_points(group="jax_plugins", name="shardc"):
        from shardc.frontends.pjrt import plugin

        plugin.initialize()


def start() -> dict[str, float]:
    """The first programs of a process."""
    begin = time.perf_counter()
    import jax
    import jax.numpy as jnp

    imported = time.perf_counter() - begin
    client = _seconds(lambda: (_register(), jax.devices()))
    first = _seconds(lambda: jax.jit(lambda x: x + 1)(1.0).block_until_ready())
    second = _seconds(lambda: jax.jit(lambda x: x * 3)(2.0).block_until_ready())
    ones = _seconds(lambda: jnp.ones(3).block_until_ready())
    return {"import": imported, "client": client, "first": first, "second": second, "ones": ones}


def programs() -> dict[str, Any]:
    """The compile time of each program of the set, and of calling all of them once more without `jax.jit`."""
    import jax
    from small_set import PROGRAMS, calls

    _register()
    jax.jit(lambda x: x + 1)(1.0)
    found = {}
    for name, (function, shapes) in PROGRAMS.items():
        lowered = jax.jit(lambda *arguments, f=function: f(*arguments)).lower(*shapes)
        found[name] = _seconds(lowered.compile)
    given = [(function, [jax.device_put(a) for a in arguments]) for _, function, arguments in calls()]
    eager = _seconds(lambda: [jax.block_until_ready(function(*arguments)) for function, arguments in given])
    again = _seconds(lambda: [jax.block_until_ready(function(*arguments)) for function, arguments in given])
    return {"programs": found, "eager": eager, "again": again}


if __name__ == "__main__":
    print(json.dumps({"start": start, "programs": programs}[sys.argv[1]]()))
