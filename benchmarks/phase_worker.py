"""Many small collectives in one program: microseconds per phase, ``shardc`` or ``xla`` on so many devices.

python benchmarks/phase_worker.py SIDE DEVICES PHASES ROUNDS

A phase is a tanh of 16 floats per device and their sum over all devices, in a loop of PHASES. What a call of the
program costs is taken off: a loop twice as long is measured too. In an MPI job ours runs on its ranks; rank 0 prints a
line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

WIDTH = 16


def _program(mesh: Any, phases: int) -> Callable[[Any], Any]:
    def local(x: Any) -> Any:
        return jax.lax.fori_loop(0, phases, lambda _, s: jax.lax.psum(jnp.tanh(s + x), "x"), jnp.zeros_like(x))

    whole = PartitionSpec()
    return jax.shard_map(local, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=whole, check_vma=False)


def _xla(devices: int, phases: int, x: Any) -> Callable[[], Any]:
    mesh = jax.make_mesh((devices,), ("x",))
    placed = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
    step = jax.jit(_program(mesh, phases)).lower(placed).compile()
    return lambda: jax.block_until_ready(step(placed))


def _ours(devices: int, phases: int, x: Any) -> Callable[[], Any]:
    import shardc
    from shardc import Mesh, P

    mesh = Mesh({"x": devices})
    jitted = shardc.jit(_program(mesh.to_jax(), phases), mesh=mesh, in_shardings=(P("x"),), out_shardings=P())
    step = jitted.compiled(x)
    placed = step.driver.put(0, x)
    return lambda: step(placed)


def main() -> None:
    side, devices, phases, rounds = sys.argv[1], *map(int, sys.argv[2:])
    x = np.full(devices * WIDTH, 1e-3, np.float32)
    make = {"xla": _xla, "shardc": _ours}[side]
    runs = [make(devices, n, x) for n in (phases, 2 * phases)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for run, seconds in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    short, long = (statistics.median(t[1:]) for t in times)
    answer = {"phase": (long - short) / phases, "call": short - (long - short)}
    if side == "xla":
        print(json.dumps(answer), flush=True)
        return
    import shardc

    if shardc.process_index() == 0:
        print(json.dumps(answer), flush=True)


main()
