"""Plans that follow patterns are simulated beside the modelled best, as their annotations: the best of all is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import Mesh
from shardc.analysis.auto import find_plan
from shardc.analysis.auto.find_plan import PlanSearch

MACHINE = "h100-dgx"
_MEMORY = 80e9


def step(w: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent for a perceptron of four layers."""

    def loss(w: Any) -> Any:
        h = x
        for a, b in w:
            h = jnp.tanh(h @ a + b)
        return jnp.mean((h - y) ** 2)

    return jax.tree.map(lambda a, g: a - 1e-3 * g, w, jax.grad(loss)(w))


@pytest.fixture(scope="module")
def search() -> PlanSearch:
    array = lambda *dims: jax.ShapeDtypeStruct(dims, np.float32)  # noqa: E731
    w, batch = [(array(1024, 1024), array(1024)) for _ in range(4)], array(4096, 1024)
    source = shardc.from_jax(jax.jit(step, donate_argnums=0), w, batch, batch)
    return PlanSearch.begin(source.annotate({}, mesh=Mesh({"d": 8})), MACHINE, _MEMORY)


def test_state_is_split_where_arithmetic_is_not(search: PlanSearch) -> None:
    """Models see hardly a difference between plans of which one is a fifth shorter."""
    assert search.best.choice is not None
    modelled, found = search.carry_out(search.best.choice), search.found()
    assert found is not None and found.answer is not None and found.answer.method == "pattern"
    assert found.simulation.step_seconds < 0.85 * modelled.simulation.step_seconds
    assert found.simulation.step_seconds < 0.9 * search.as_given().simulation.step_seconds
    split = {n.partition("[")[0]: n for spec in found.written.specs for n in spec.names}
    assert split == {"w": "w[*][0]", "x": "x"}, "no bias"


def test_what_is_told_of_a_pattern_is_what_its_annotations_give(search: PlanSearch) -> None:
    found = search.found()
    assert found is not None
    again = search.program.annotate(found.written.annotations()).partition(machine=MACHINE, plan="propagated")
    assert again.as_text() == found.partitioned.as_text()
    assert again.simulate(MACHINE).step_seconds == found.simulation.step_seconds


@pytest.mark.parametrize("room", [_MEMORY, 31e6])
def test_patterns_never_harm(search: PlanSearch, room: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within plenty of memory, and within what few plans fit into."""
    limited = replace(search, memory=room, best=search.question.solve(room))
    found = limited.found()
    monkeypatch.setattr(find_plan, "find_seeds", lambda question, memory, spread: [])
    monkeypatch.setattr(find_plan, "find_state_seeds", lambda question, memory: [])
    without = limited.found()
    assert found is not None and without is not None
    assert found is not without and not without.is_better(found, room)


def test_so_little_time_counts_less_than_so_much_memory() -> None:
    """By default each device reads its part of whole arguments: that is a little faster here, and needs much more."""
    array = lambda *dims: jax.ShapeDtypeStruct(dims, np.float32)  # noqa: E731

    def norm(w: Any, x: Any, y: Any) -> Any:
        loss = lambda w: jnp.mean((jax.nn.relu(x @ w[0]) @ w[1] - y) ** 2)  # noqa: E731
        return sum(jnp.vdot(g, g) for g in jax.grad(loss)(w))

    arguments = (array(2048, 8192), array(8192, 2048)), array(65536, 2048), array(65536, 2048)
    given = shardc.from_jax(jax.jit(norm), *arguments).annotate({}, mesh=Mesh({"data": 4}))
    found = shardc.auto(given, machine=MACHINE)
    assert found.annotations
    assert found.given.step_seconds < found.simulation.step_seconds < 1.01 * found.given.step_seconds
    assert found.simulation.peak_bytes < 0.8 * found.given.peak_bytes
