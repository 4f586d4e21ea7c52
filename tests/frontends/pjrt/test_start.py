"""The first program of a process imports no compiler if the cache knows it, and else only what it needs of one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

PROGRAM = """
import sys
import jax
import jax.numpy as jnp
from shardc.frontends.pjrt import plugin
before = [m for m in sys.modules if m.startswith("shardc.")]
plugin.initialize()
print(float(jax.jit(lambda x: jnp.sum(x * 2))(jnp.ones(3))))
print(*[m.removeprefix("shardc.") for m in sys.modules if m.startswith("shardc.")])
"""

#: What no start needs.
NEVER = ("hlo.evaluate", "sharding.propagation", "sharding.provenance", "sharding.rules", "sharding.axes.nearest_tiles",
         "costs.network", "costs.machines", "collectives.mpi", "collectives.shared_memory.transport",
         "partitioner.partition", "partitioner.regions", "compiler.gpu", "compiler.tune", "analysis", "service",
         "stages.stages", "stages.jit")  # fmt: skip
#: Most modules of ours: what is imported takes most of the time until the first result.
MOST_UNKNOWN, MOST_KEPT = 500, 252
#: What only a program needs that the cache does not know.
UNKNOWN = ("hlo.stablehlo.reader", "hlo.stablehlo.converter", "hlo.text.printer", "compiler.lower.pipeline",
           "compiler.cpu", "compiler.emit")  # fmt: skip


def imported(folder: Path) -> set[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "shardc", "SHARDC_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    value, modules = done.stdout.splitlines()
    assert value == "6.0"
    return set(modules.split())


def within(modules: set[str], rooms: tuple[str, ...]) -> list[str]:
    return sorted(m for m in modules if any(m == room or m.startswith(f"{room}.") for room in rooms))


def test_the_first_program_imports_what_it_needs(tmp_path: Path) -> None:
    unknown, kept = imported(tmp_path), imported(tmp_path)
    assert within(unknown, UNKNOWN)
    assert not within(unknown, NEVER)
    assert not within(kept, (*NEVER, *UNKNOWN))
    assert len(unknown) <= MOST_UNKNOWN
    assert len(kept) <= MOST_KEPT
