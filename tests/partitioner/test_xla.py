"""XLA itself compiles and runs our printed per-device programs: a second, independent truth."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from partition_programs import PROGRAMS
from partition_support import integers, random_sharding, scatter_poisoned, with_shardings

from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.text.printer import print_module
from shardc.partitioner.equivalence import agree, gather_results
from shardc.partitioner.partition import partition
from shardc.sharding.propagate import propagate

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


def test_batches_of_lapack_calls_stay_apart(tmp_path: Path) -> None:
    """No device sees more than its matrices, and XLA finds layouts and attributes as JAX's kernels want them."""
    jax = pytest.importorskip("jax")
    import shardc

    def function(x: object) -> tuple[object, ...]:
        q, r = jax.numpy.linalg.qr(x)
        u, s, v = jax.numpy.linalg.svd(x, full_matrices=False)
        return q, r, (u * s[:, None, :]) @ v, jax.scipy.linalg.solve_triangular(r, x, lower=False)

    x = np.random.default_rng(5).standard_normal((4, 3, 3)).astype(np.float32) + 2 * np.eye(3, dtype=np.float32)
    program = shardc.from_jax(jax.jit(function), x)
    sharded = program.annotate({"x": shardc.P("b", None, None)}, mesh=Mesh({"b": 2})).partition()
    assert not sharded.report()["collectives"]
    got = through_xla({"lapack": (sharded.module, [x])}, tmp_path)["lapack"]
    for g, w in zip(got, evaluate(program.module, [x]), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_computes_the_same_at_length(name: str, tmp_path: Path) -> None:
    compare([name], range(1, 25), tmp_path)


def benchmark_programs() -> list[Any]:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from partitioning_set import ALL
    finally:
        sys.path.pop(0)
    return list(ALL)


def three_truths(programs: list[Any], folder: Path) -> None:
    """XLA on our text, XLA on the unpartitioned program and our evaluator on our text agree with our evaluator."""
    import jax
    from jax.sharding import AbstractMesh, AxisType
    from partitioning_programs import Places, draw

    from shardc.frontends.jax.frontend import module_from_jax

    made = {}
    for number, program in enumerate(programs):
        axes = program.mesh
        mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
        function, arguments = program.make(Places(mesh))
        module = propagate(module_from_jax(function, *arguments).module).module
        args = draw([(p.shape.dims, p.shape.dtype.numpy) for p in module.parameters])
        one = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(axes)), tuple(axes))
        whole = program.make(Places(one))[0](*jax.tree.unflatten(jax.tree.structure(arguments), args))
        made[f"p{number}"] = (program.name, module, partition(module), args, jax.tree.leaves(whole))
    got = through_xla({k: (local, args) for k, (_, _, local, args, _) in made.items()}, folder)
    wrong = []
    for key, (name, module, local, args, whole) in made.items():
        want, reference = evaluate(module, args), evaluate(module, args, float64=True)
        ours = gather_results(local, evaluate_spmd(local, scatter_poisoned(local, args)))
        for x, y, o, w, r in zip(got[key], whole, ours, want, reference, strict=True):
            if not agree(x, w, r):
                wrong.append(f"{name}: XLA on our text")
            if not agree(np.asarray(y), w, r):
                wrong.append(f"{name}: XLA on the unpartitioned program")
            if not agree(o, w, r):
                wrong.append(f"{name}: our evaluator on our text")
    assert not wrong


def test_benchmark_programs_agree(tmp_path: Path) -> None:
    """A seeded slice."""
    three_truths(random.Random(5).sample(benchmark_programs(), 5), tmp_path)


def test_loops_keep_what_they_only_pass_on(tmp_path: Path) -> None:
    """XLA takes loops that carry made arrays unchanged, and branches that take nothing."""
    wanted = ("attention in chunks of keys", "contrastive loss, data parallel")
    three_truths([p for p in benchmark_programs() if p.name in wanted], tmp_path)


@pytest.mark.full
def test_all_benchmark_programs_agree(tmp_path: Path) -> None:
    three_truths(benchmark_programs(), tmp_path)
