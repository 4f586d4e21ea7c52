"""A transformer's training step on 1 to 1,024 virtual devices of one process: time, cores in use, memory.

``python functional_scale.py DATA FSDP MODEL`` measures one mesh and prints it as JSON; `rows` does so in a process per
mesh, and compares. The global program is the same on every mesh.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

LAYERS, BATCH, LENGTH, WIDTH, HEADS, VOCABULARY = 4, 256, 32, 128, 8, 512
MESHES = ((1, 1, 1), (2, 2, 2), (4, 4, 4), (8, 8, 8), (16, 8, 8))
STEPS = 7

HEAD = (
    "devices (data, fsdp, model)",
    "first call",
    "step",
    "cores busy",
    "arithmetic of all devices",
    "processor time / work",
    "sum of shards",
    "memory of the step / shards",
)


def rows() -> list[tuple[str, ...]]:
    """Cells for `HEAD`; the unit of arithmetic and work is one device with the whole program.

    Work is what that takes for as many operations as all devices do.
    """
    found = [_measured(mesh) for mesh in MESHES]
    alone = found[0]
    out = []
    for mesh, m in zip(MESHES, found, strict=True):
        arithmetic = m["flops"] / alone["flops"]
        busy = m["processor"] / m["step"]
        overhead = m["processor"] / (alone["processor"] * arithmetic)
        out.append(
            (
                f"{m['devices']} ({', '.join(map(str, mesh))})",
                f"{m['first']:.1f} s",
                f"{m['step'] * 1e3:.0f} ms",
                f"{busy:.2f} of {m['cores']}",
                f"{arithmetic:.2f}x",
                f"{overhead:.2f}",
                f"{m['shards'] / 1e6:.0f} MB",
                f"{m['resident'] / m['shards']:.2f}",
            )
        )
    return out


def _measured(mesh: tuple[int, int, int]) -> dict[str, Any]:
    command = [sys.executable, __file__, *map(str, mesh)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _normed(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _layer(constrain: Any, x: Any, w: Any) -> tuple[Any, None]:
    import jax
    import jax.numpy as jnp

    q, k, v = (jnp.einsum("btd,dhk->bthk", _normed(x), w[n]) for n in "qkv")
    scores = jnp.einsum("bthk,bshk->bhts", q, k) * (WIDTH // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    x = constrain(x + jnp.einsum("bhts,bshk,hkd->btd", jax.nn.softmax(scores), v, w["out"]))
    return constrain(x + jax.nn.gelu(_normed(x) @ w["up"]) @ w["down"]), None


def _step(constrain: Any, params: Any, tokens: Any) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    def loss_of(params: Any) -> Any:
        x, _ = jax.lax.scan(partial(_layer, constrain), constrain(params["embed"][tokens]), params["layers"])
        logits = _normed(x)[:, :-1] @ params["embed"].T
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1))

    loss, gradients = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss


def _measure(sizes: tuple[int, ...]) -> dict[str, Any]:
    import jax
    import numpy as np

    import shardc
    from shardc import Mesh, P
    from shardc.launcher.jobs.affinity import processors_here

    mesh = Mesh(dict(zip(("data", "fsdp", "model"), sizes, strict=True)))
    rows = jax.NamedSharding(mesh.to_jax(), jax.P(("data", "fsdp")))
    rng = np.random.default_rng(0)
    heads = (LAYERS, WIDTH, HEADS, WIDTH // HEADS)
    shapes = dict.fromkeys("qkv", heads) | {"out": (LAYERS, HEADS, WIDTH // HEADS, WIDTH)}
    shapes |= {"up": (LAYERS, WIDTH, 4 * WIDTH), "down": (LAYERS, 4 * WIDTH, WIDTH)}
    params: Any = {"layers": {n: rng.normal(0, 0.1, s).astype(np.float32) for n, s in shapes.items()}}
    params["embed"] = rng.normal(0, 0.3, (VOCABULARY, WIDTH)).astype(np.float32)
    tokens = rng.integers(0, VOCABULARY, (BATCH, LENGTH), dtype=np.int32)
    layers = {n: P(None, "fsdp", "model") for n in shapes} | {"out": P(None, "model", None, "fsdp")}
    specs = {"layers": layers | {"down": P(None, "model", "fsdp")}, "embed": P("model", "fsdp")}
    constrain = partial(jax.lax.with_sharding_constraint, shardings=rows)
    step = shardc.jit(
        partial(_step, constrain), mesh=mesh, in_shardings=(specs, P(("data", "fsdp"))), out_shardings=(specs, P())
    )
    start = time.perf_counter()
    compiled = step.compiled(params, tokens)
    _ = compiled.step
    before = _resident()
    params, _ = compiled(params, tokens)
    first = time.perf_counter() - start
    wall, processor = [], []
    for _ in range(STEPS):
        begin, used = time.perf_counter(), time.process_time()
        params, _ = compiled(params, tokens)
        wall.append(time.perf_counter() - begin)
        processor.append(time.process_time() - used)
    return {
        "devices": mesh.size,
        "first": first,
        "step": statistics.median(wall),
        "processor": statistics.median(processor),
        "cores": len(processors_here()),
        "flops": compiled.partitioned().report()["flops"] * mesh.size,
        "shards": _shards(compiled),
        "resident": _resident() - before,
    }


def _shards(compiled: Any) -> int:
    """Bytes of what all devices hold in a step: equal shards of arguments and results once, every device's arena."""
    from shardc.launcher.arrays.layout import ArrayLayout

    program = compiled.executable
    layouts = [ArrayLayout.of(s, program.num_devices) for s in (*program.arguments, *program.results)]
    held = sum(layout.local_bytes * len(layout.holders) for layout in layouts)
    return int(held + program.arena_bytes * program.num_devices)


def _resident() -> int:
    """Bytes of this process in memory now."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0


def main() -> None:
    import os

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDC_CACHE_DIR"] = folder
        print(json.dumps(_measure(tuple(map(int, sys.argv[1:4])))))


if __name__ == "__main__":
    main()
