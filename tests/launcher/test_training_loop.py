"""`shardc.jit` in a loop: nothing is compiled twice, little Python per step, no memory that grows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh, P

ROOT = Path(shardc.__file__).resolve().parents[1]
MESH = Mesh({"data": 4})
X = np.ones((8, 4), np.float32)
#: Python calls that a step may make: so many, and so many more for each array that goes in or comes out.
CALLS, CALLS_PER_ARRAY = 60, 8


def state() -> dict[str, Any]:
    return {f"w{i}": np.full((4, 4), 0.1 * (i + 1), np.float32) for i in range(3)}


def training(depth: int = 1, **options: Any) -> Any:
    """A step whose loss needs ``depth`` all-reduces, and its gradients more."""

    def loss(weights: Any, x: Any) -> Any:
        for _ in range(depth):
            x = jnp.tanh(x @ weights["w0"] + x @ weights["w1"]) - jnp.mean(x, axis=0)
        return jnp.mean((x @ weights["w2"]) ** 2)

    def step(weights: Any, x: Any, rate: Any) -> Any:
        step.times += 1
        value, gradients = jax.value_and_grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - rate * g, weights, gradients), value

    shardings = {"in_shardings": (P(), P("data"), None), "out_shardings": P()}
    step.times = 0
    return shardc.jit(step, mesh=MESH, donate_argnums=0, **{**shardings, **options})


def count_calls(run: Callable[[], Any]) -> tuple[int, int]:
    """How many Python functions ``run`` calls: those of this project, and all of them."""
    files: list[str] = []

    def on(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            files.append(frame.f_code.co_filename)

    sys.setprofile(on)
    try:
        run()
    finally:
        sys.setprofile(None)
    return sum(Path(file).is_relative_to(ROOT) and "site-packages" not in file for file in files), len(files)


def test_python_per_step_does_not_depend_on_the_collectives() -> None:
    # JAX's own calls differ from step to step, so only this project's are compared exactly.
    ours, collectives = [], []
    for depth in (1, 12):
        train, weights = training(depth), state()
        for _ in range(5):
            weights, _ = train(weights, X, 0.1)
        held = [weights]

        def step(train: Any = train, held: list[Any] = held) -> None:
            held[0], _ = train(held[0], X, 0.1)

        counts = [count_calls(step) for _ in range(20)]
        ours.append(min(mine for mine, _ in counts))
        assert min(every for _, every in counts) <= CALLS + CALLS_PER_ARRAY * 9
        collectives.append(len(train.compiled(state(), X, 0.1).executable.collectives))
    assert collectives[1] > collectives[0] + 5
    assert 1 < ours[0] == ours[1]


def test_schedules_and_evaluation_compile_nothing_again() -> None:
    """A Python scalar of every value is one program; so is a loop that turns to another one in between."""
    train = training()
    judged = []

    def judgement(w: Any, x: Any) -> Any:
        judged.append(1)
        return jnp.sum(x @ w["w0"])

    judge = shardc.jit(judgement, mesh=MESH, in_shardings=(P(), P("data")))
    weights, losses = state(), []
    for number in range(6):
        weights, loss = train(weights, X, 0.1 / (number + 1))
        losses.append(float(loss))
        judge(weights, X)
    assert losses == sorted(losses, reverse=True)
    # JAX tells arrays over a mesh from those of NumPy.
    assert (train.__wrapped__.times, len(judged)) == (2, 1)


def test_other_arguments_are_another_program() -> None:
    double = shardc.jit(lambda x, k=1: {"y": x * 2 * k}, static_argnames="k")
    a, b = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)
    for _ in range(3):
        assert np.array_equal(double(a)["y"], a * 2)
        assert np.array_equal(double(b)["y"], b * 2)
        assert np.array_equal(double(a.astype(np.int32))["y"], [0, 2, 4])
        assert np.array_equal(double(a, k=3)["y"], a * 6)
        assert np.array_equal(double(jnp.asarray(a))["y"], a * 2)
        assert float(double(2.5)["y"]) == 5.0
        assert int(double(2)["y"]) == 4
    with pytest.raises(TypeError):
        double(a, other=1)


def test_wrong_arguments_after_right_ones() -> None:
    """What is remembered of a call is asked again about the next one."""
    train, weights = training(), state()
    old = weights
    for _ in range(3):
        old, (weights, _) = weights, train(weights, X, 0.1)
    with pytest.raises((ValueError, RuntimeError), match="deleted or donated"):
        train(old, X, 0.1)
    with pytest.raises((ValueError, RuntimeError), match="donate"):
        train({**weights, "w1": weights["w0"]}, X, 0.1)
    weights, _ = train(state(), X, 0.1)


def test_keys_and_dropped_arguments_in_a_loop() -> None:
    """PRNG keys are converted at every call; arguments that nothing reads are left out."""

    def draw(key: Any, unused: Any, x: Any) -> Any:
        key, now = jax.random.split(key)
        return key, x + jax.random.uniform(now, x.shape)

    ours, theirs = shardc.jit(draw), jax.jit(draw)
    key, other, x = jax.random.key(3), jax.random.key(3), np.zeros(4, np.float32)
    for _ in range(4):
        key, mine = ours(key, X, x)
        other, right = theirs(other, X, x)
        assert np.array_equal(mine, right)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_two_thousand_steps_hold_no_more_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    train, weights = training(), state()
    for number in range(2400):
        weights, loss = train(weights, X, 1e-3)
        if number == 400:
            early = resident()
    assert np.isfinite(loss)
    assert resident() - early < 3 << 20
