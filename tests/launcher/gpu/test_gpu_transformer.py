"""A transformer's training step, partitioned over a 2x2 mesh, on emulated GPUs and on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from shardc import Program
from shardc.compiler.gpu_program import HostStep, leaf_steps
from shardc.demo.export import bundled_module, export
from shardc.demo.setup import ModelConfig, example_inputs, example_state, example_tokens, named_leaves
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from tests.launcher.gpu.gpu_driving import cpu_driver, gpu_driver, gpu_executable

SMALL = ModelConfig(layers=1, d_model=32, heads=2, d_ff=64, vocab=96, sequence=16, batch=4)


def compare(module: Module, arguments: list[np.ndarray], steps: int, seed: int | None, config: Config) -> None:
    """``steps`` steps, whose state stays on the devices: every array agrees after the last one."""
    partitioned = Program(module).partition()
    executable = gpu_executable(partitioned.compiled_module, config)
    assert executable.num_devices == 4 and executable.collectives and executable.gpu is not None
    assert not [s for s in leaf_steps(executable.gpu.steps) if isinstance(s, HostStep)]
    results = []
    for driver in (gpu_driver(executable, seed), cpu_driver(partitioned.compiled_module)):
        values: list[object] = list(arguments)
        for _ in range(steps):
            out = driver(values)
            values[: len(out) - 1] = out[:-1]
        results.append([np.asarray(r, np.float64) for r in out])
    for n, (got, wanted) in enumerate(zip(*results, strict=True)):
        scale = max(float(np.abs(wanted).max()), 1e-6)
        assert float(np.abs(got - wanted).max()) <= 2e-5 * scale, module.result_names[n]


@pytest.mark.parametrize("overlap", ["always", pytest.param("never", marks=pytest.mark.full)])
def test_a_transformer_step_equals_the_cpu_result(overlap: str) -> None:
    pytest.importorskip("jax")
    module = export(SMALL)
    given = {**dict(named_leaves(example_state(0, SMALL), "state")), "tokens": example_tokens(0, SMALL)}
    arguments = [given[name] for name in module.arg_names]
    compare(module, arguments, steps=3, seed=5, config=Config(overlap=overlap, overlap_memory=4.0))


@pytest.mark.full
def test_the_demo_equals_the_cpu_result() -> None:
    module = bundled_module()
    compare(module, example_inputs(module.arg_names, 0), steps=2, seed=None, config=Config())
