"""XLA itself compiles and runs our printed per-device programs: a second, independent truth."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import integers, random_sharding, scatter_poisoned, with_shardings

from shardc.hlo.build import Builder
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir import Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.text.printer import print_module
from shardc.partitioner.equivalence import gather_results
from shardc.partitioner.partition import partition

pytest.importorskip("jaxlib")

MESHES = (Mesh({"x": 2, "y": 2}), Mesh({"x": 2, "y": 4}), Mesh({"x": 3}), Mesh({"x": 2, "y": 2}, (2, 0, 3, 1)))


def case(name: str, seed: int) -> tuple[Module, Module, list[np.ndarray]]:
    """A global module, its partitioned form and arguments."""
    r = random.Random(f"xla {name} {seed}")
    mesh = r.choice(MESHES)
    b = Builder("main")
    computation = b.build(PROGRAMS[name](r, b))
    module = with_shardings(computation, mesh, lambda i: random_sharding(r, mesh, i.shape.rank))
    rng = np.random.default_rng(seed)
    return module, partition(module), [integers(rng, p.shape) for p in module.parameters]


def through_xla(cases: dict[str, tuple[Module, list[np.ndarray]]], folder: Path) -> dict[str, list[np.ndarray]]:
    """Gathered results by case, computed by XLA in one child process."""
    for name, (module, args) in cases.items():
        (folder / f"{name}.hlo").write_text(print_module(module))
        per_device = scatter_poisoned(module, args)
        columns = {f"d{d}_{i}": a for d, row in enumerate(per_device) for i, a in enumerate(row)}
        np.savez(folder / f"{name}.npz", devices=module.num_partitions, **columns)
    script = Path(__file__).with_name("xla_runner.py")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, script, folder], env={**os.environ, **flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    out = {}
    for name, (module, _) in cases.items():
        failed = folder / f"{name}.err"
        assert not failed.exists(), f"{name}: {failed.read_text()[:2000]}\n{print_module(module)}"
        with np.load(folder / f"{name}.out.npz") as given:
            count = len(module.attrs["global_results"])
            shards = [[given[f"d{d}_{i}"] for i in range(count)] for d in range(module.num_partitions)]
        out[name] = gather_results(module, shards)
    return out


def compare(names: list[str], seeds: range, folder: Path) -> None:
    made = {f"{name}-{seed}": case(name, seed) for name in names for seed in seeds}
    got = through_xla({k: (local, args) for k, (_, local, args) in made.items()}, folder)
    for key, (module, _, args) in made.items():
        for g, w in zip(got[key], evaluate(module, args), strict=True):
            np.testing.assert_array_equal(g, w, err_msg=key)


def test_xla_computes_the_same(tmp_path: Path) -> None:
    compare(list(PROGRAMS), range(1), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_computes_the_same_at_length(name: str, tmp_path: Path) -> None:
    compare([name], range(1, 25), tmp_path)
