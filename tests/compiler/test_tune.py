"""Tuning: kept choices are used again, what needs more memory is refused, and every choice computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.compile import compile_module
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import run_single
from shardc.compiler.tune import tune as tune_module
from shardc.compiler.tune.trial import StepTrial, compare
from shardc.compiler.tune.tune import TuningChoice, Workplace, tune
from shardc.compiler.tuning import DEFAULT, Tuning, kernel_candidates
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.native.llvm.target import host_target
from shardc.native.threads.pool import pool, pool_object
from tests.compiler.checking import assert_close, program, random_arguments
from tests.compiler.kernel_runner import instruction

PRODUCT = (
    "x = f32[130,300] parameter(0)\ny = f32[300,140] parameter(1)\n"
    "d = f32[130,140] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "t = f32[130,140] tanh(d)\nz = f32[] constant(0)\nROOT r = f32[130] reduce(t, z), dimensions={1}, to_apply=sum"
)
MAPS = (
    "x = f32[700,300] parameter(0)\nv = f32[300] parameter(1)\nb = f32[700,300] broadcast(v), dimensions={1}\n"
    "a = f32[700,300] add(x, b)\ne = f32[700,300] exponential(a)\nt = f32[300,700] transpose(e), dimensions={1,0}\n"
    "z = f32[] constant(0)\ns = f32[300] reduce(x, z), dimensions={0}, to_apply=sum\n"
    "ROOT r = (f32[700,300], f32[300,700], f32[300]) tuple(e, t, s)"
)
IMAGES = (
    "x = f32[2,14,14,8] parameter(0)\nk = f32[3,3,8,16] parameter(1)\n"
    "ROOT c = f32[2,14,14,16] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
)


def place(config: Config, module: Module, build: Callable[[TuningChoice], Executable] | None = None) -> Workplace:
    def made(choice: TuningChoice) -> Executable:
        emit = partial(choice.emit, host_target())
        return build_executable(module, config, host_target(), kernels=emit, tuning=choice.program)

    return Workplace(config, host_target(), build or made, lambda: pool(pool_object()))


class Judge:
    """Stands in for the clock: the last of several ways is always the fastest, or always the slowest."""

    def __init__(self, likes_the_last: bool) -> None:
        self.likes_the_last = likes_the_last
        self.asked = 0

    def __call__(self, runs: Sequence[Callable[[], None]], deadline: float) -> list[float]:
        self.asked += 1
        return [1.0 / (n + 1) if self.likes_the_last else 1.0 + n for n in range(len(runs))]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(cache_dir=tmp_path, tune=60.0, num_threads=2)


@pytest.mark.parametrize("lines", [PRODUCT, MAPS, IMAGES])
def test_choices_are_kept_and_compute_the_same(
    lines: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(likes_the_last=True)
    monkeypatch.setattr(tune_module, "compare", judge)
    module = program(lines)
    first = tune(module, place(config, module))
    asked = judge.asked
    assert asked
    assert tune(module, place(config, module)) == first
    assert judge.asked == asked
    executable = compile_module(module, config)
    assert executable.tuning == first.as_dict()
    assert first.kernels or first.program != DEFAULT
    args = random_arguments(module)
    got = run_single(executable, args)
    assert_close(got, evaluate(module, args))
    for a, b in zip(got, run_single(compile_module(module, config), args), strict=True):
        np.testing.assert_array_equal(a, b)


def test_kernels_keep_their_choice_in_other_programs(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(likes_the_last=False)
    monkeypatch.setattr(tune_module, "compare", judge)
    monkeypatch.setattr(tune_module, "program_candidates", list)
    one = program(PRODUCT)
    tune(one, place(config, one))
    asked = judge.asked
    other = one.with_(name="other")
    assert tune(other, place(config, other)).kernels == {}
    assert judge.asked == asked > 0


def test_damaged_choices_are_made_again(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(likes_the_last=False)
    monkeypatch.setattr(tune_module, "compare", judge)
    module = program(PRODUCT)
    tune(module, place(config, module))
    asked = judge.asked
    for path in (tmp_path / "tuning").iterdir():
        path.write_text('{"program": {"pieces": ')
    tune(module, place(config, module))
    assert judge.asked == 2 * asked


def test_without_time_nothing_changes(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_module, "compare", Judge(likes_the_last=True))
    module = program(PRODUCT)
    choice = tune(module, place(replace(config, tune=1e-9), module))
    assert (choice.program, choice.kernels) == (DEFAULT, {})


def test_off_by_default(tmp_path: Path) -> None:
    executable = compile_module(program(PRODUCT), Config(cache_dir=tmp_path))
    assert executable.tuning == {}
    assert not (tmp_path / "tuning").exists()


def test_more_memory_is_refused(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_module, "compare", Judge(likes_the_last=True))
    monkeypatch.setattr(tune_module, "kernel_candidates", lambda i: [])
    module = program(PRODUCT)

    def build(choice: TuningChoice, extra: int) -> Executable:
        tuning = choice.program
        made = build_executable(module, config, host_target(), tuning=tuning)
        peak = made.memory["peak_bytes"] + (extra if tuning != DEFAULT else 0)
        return replace(made, memory={**made.memory, "peak_bytes": peak}, objects=(*made.objects, repr(tuning).encode()))

    monkeypatch.setattr(tune_module, "StepTrial", lambda executable, pool: type("T", (), {"run": lambda self: None})())
    greedy = tune(module, place(config, module, partial(build, extra=1)))
    assert greedy.program == DEFAULT
    modest = tune(module.with_(name="modest"), place(config, module, partial(build, extra=0)))
    assert modest.program != DEFAULT


def test_kernels_must_make_the_step_faster(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(PRODUCT)
    judge = Judge(likes_the_last=True)

    def kernels_only(runs: Sequence[Callable[[], None]], deadline: float) -> list[float]:
        steps = any(hasattr(run, "__self__") for run in runs)
        return [1.0 + n for n in range(len(runs))] if steps else judge(runs, deadline)

    monkeypatch.setattr(tune_module, "compare", kernels_only)
    choice = tune(module, place(config, module))
    assert judge.asked
    assert (choice.program, choice.kernels) == (DEFAULT, {})


UNBOUNDED = """
body { b.x = f32[] parameter(0)  ROOT b.y = f32[] add(b.x, b.x) }
condition { c.x = f32[] parameter(0)  c.l = f32[] constant(100)  ROOT c.c = pred[] compare(c.x, c.l), direction=LT }
"""


def test_loops_that_may_never_end_are_not_run(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("the step was run on random data")

    monkeypatch.setattr(tune_module, "StepTrial", fail)
    module = program("x = f32[] parameter(0)\nROOT w = f32[] while(x), condition=condition, body=body", UNBOUNDED)
    assert tune(module, place(config, module)).program == DEFAULT


@settings(max_examples=20, deadline=None)
@given(
    lines=st.sampled_from([PRODUCT, MAPS, IMAGES]),
    tuning=st.builds(
        Tuning,
        pieces=st.sampled_from([0.0, 0.25, 1.0, 7.0]),
        streamed=st.sampled_from([1024, 1 << 62]),
        tile_rows=st.sampled_from([16, 100, 1024]),
        panel_bytes=st.sampled_from([64, 128, 512]),
        panel_depth=st.sampled_from([16, 100, 512]),
        patches=st.sampled_from([1 << 12, 1 << 20]),
        winograd=st.booleans(),
        fused=st.sampled_from([1, 2, 96]),
        merged=st.booleans(),
    ),
)
def test_every_tuning_computes_the_same(lines: str, tuning: Tuning) -> None:
    module = program(lines)
    args = random_arguments(module)
    emit = partial(emit_kernel, tuning=tuning)
    executable = build_executable(module, Config(), host_target(), kernels=emit, tuning=tuning)
    assert_close(run_single(executable, args), evaluate(module, args))


def test_trials_run_steps_and_take_turns() -> None:
    module = program(MAPS)
    trial = StepTrial(build_executable(module, Config(), host_target()), pool(pool_object()))
    trial.run()
    turns: list[int] = []
    seconds = compare([lambda: turns.append(0), lambda: turns.append(1)], deadline=0.0)
    assert len(seconds) == 2
    assert turns.count(0) - 1 == turns.count(1)


def test_candidates_fit_the_kernel() -> None:
    from shardc.hlo.ir.types import array_shape

    square = array_shape("f32", 2048, 2048)
    dot = instruction("dot", square, square, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    assert [name for name, _ in kernel_candidates(dot)] == [
        "tile_rows", "panel_depth", "panel_bytes", "streamed", "pieces",
    ]  # fmt: skip
    assert [name for name, _ in kernel_candidates(instruction("tanh", array_shape("f32", 10)))] == ["pieces"]


def test_changes_are_what_is_not_the_default() -> None:
    assert DEFAULT.changes() == {}
    assert Tuning(**Tuning(merged=False, pieces=4.0).changes()) == Tuning(merged=False, pieces=4.0)
