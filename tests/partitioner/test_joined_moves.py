"""How many equal values are moved together: alike, read alike, and none made from another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import shardc
from shardc import Mesh, P
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.partition import OPENING
from shardc.partitioner.plan.joined_moves import count_joined_moves
from shardc.partitioner.plan.plan_layouts import LayoutQuestion, pose_question

jax = pytest.importorskip("jax")

SIZE = 64


def question(function: Callable[..., Any], count: int, rows: int = SIZE) -> LayoutQuestion:
    arguments = [jax.ShapeDtypeStruct((rows, SIZE), "float32")] * count
    program = shardc.from_jax(jax.jit(function), *arguments).annotate({"*": P("d")}, mesh=Mesh({"d": 4}))
    return pose_question(run_pipeline(program.propagate().module, OPENING, Config()), load_machine("h100-dgx"))


def joined(function: Callable[..., Any], count: int) -> Counter[int]:
    """How many products are moved with so many."""
    asked = question(function, count)
    found = count_joined_moves(asked.module, asked.graph.wires)
    return Counter(n for w, n in found.items() if w.producer is not None and w.producer.op.opcode == "dot")


def test_gradients_of_equal_weights_are_moved_together() -> None:
    assert joined(lambda x, a, b, c: (x.T @ a, x.T @ b, x.T @ c), 4) == {3: 3}


def test_what_is_made_from_one_another_is_not() -> None:
    def chain(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = x @ w
        return x

    assert set(joined(chain, 4)) <= {1}


def test_two_chains_go_side_by_side() -> None:
    def chains(x: Any, y: Any, a: Any, b: Any) -> Any:
        for w in (a, b):
            x, y = jax.numpy.tanh(x @ w), jax.numpy.tanh(y @ w)
        return x @ y

    assert joined(chains, 4) == {2: 4}


def test_other_readers_and_other_runs_make_other_moves() -> None:
    def read(x: Any, y: Any) -> Any:
        return jax.numpy.tanh(x @ y), (y @ x).T @ x

    def repeated(x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, s: s @ y, x), y @ x

    assert not joined(read, 2)
    assert set(joined(repeated, 2)) <= {1}


def test_small_moves_are_cheaper_together_and_large_ones_hardly() -> None:
    def per_value(size: int, together: int) -> float:
        asked = question(lambda x: x, 1)
        table = asked.context.table
        split, whole = table.layout(((0,), ())), table.layout(((), ()))
        found = asked.context.resharder.expect_all((size, size), 4, (split,), (whole,), together)
        return float(found[0, 0])

    assert per_value(16, 8) < per_value(16, 1) / 4
    assert per_value(8192, 8) == pytest.approx(per_value(8192, 1), rel=0.05)
