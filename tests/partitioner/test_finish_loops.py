"""Loops are pipelined, and unchanging collectives hoisted, where the simulated step is the faster for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_optimise import same
from test_pipeline_loops import backward

from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation
from shardc.costs.machines.machine import load_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.passes import Pass, run_pipeline
from shardc.hlo.text.printer import print_module
from shardc.partitioner.finish_loops import finish_loops
from shardc.partitioner.options import Choice, PartitionOptions
from shardc.partitioner.partition import optimisation, partition
from shardc.partitioner.plan.judge import Judgement
from shardc.partitioner.report import build_report

jax = pytest.importorskip("jax")

MESH = Mesh({"x": 8})
MACHINES = ("h100-dgx", "a100-dgx", "tpu-v4", "gb200-nvl72")


def layers(count: int, wide: int, batch: int, *, remat: bool = False, mesh: Mesh = MESH) -> Module:
    """Gradients of layers whose weights are split, so that each is gathered for its layer."""
    import shardc

    jnp = jax.numpy

    def layer(h: Any, w: Any) -> tuple[Any, None]:
        return h + jax.nn.gelu(h @ w[0]) @ w[1], None

    def loss(w: Any, x: Any) -> Any:
        h, _ = jax.lax.scan(jax.checkpoint(layer) if remat else layer, x, w)
        return (h.astype(jnp.float32) ** 2).sum()

    array = jax.ShapeDtypeStruct
    w = (array((count, wide, 4 * wide), jnp.bfloat16), array((count, 4 * wide, wide), jnp.bfloat16))
    given = shardc.from_jax(jax.jit(jax.value_and_grad(loss)), w, array((batch, wide), jnp.bfloat16))
    split = {"w[0]": shardc.P(None, "x"), "w[1]": shardc.P(None, None, "x"), "x": shardc.P("x")}
    return given.annotate(split, mesh=mesh).propagate().module


def few_turns(count: int, wide: int, batch: int) -> Module:
    """A loop of few turns whose second product needs split weights that never change."""
    import shardc

    jnp = jax.numpy

    def step(w: Any, split: Any, x: Any) -> Any:
        def turn(k: Any, total: Any) -> Any:
            h = jnp.tanh(jnp.tanh(x[k] @ w) @ w)
            return total + jnp.tanh(h @ split).sum()

        return jax.lax.fori_loop(0, count, turn, jnp.float32(0))

    array = jax.ShapeDtypeStruct
    w = array((wide, wide), jnp.float32)
    given = shardc.from_jax(jax.jit(step), w, w, array((count, batch, wide), jnp.float32))
    annotations = {"w": shardc.P(), "split": shardc.P("x"), "x": shardc.P(None, "x")}
    return given.annotate(annotations, mesh=MESH).propagate().module


def heat() -> Module:
    """Ten steps of a stencil on a small grid with borders."""
    import shardc

    jnp = jax.numpy

    def step(u: Any) -> Any:
        def turn(_: Any, u: Any) -> Any:
            return jnp.pad(0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]), 1)

        return jax.lax.fori_loop(0, 10, turn, u)

    given = shardc.from_jax(jax.jit(step), jax.ShapeDtypeStruct((64, 64), jnp.float32))
    return given.annotate({"u": shardc.P("x")}, mesh=MESH).propagate().module


def waves() -> Module:
    """Ten steps of a periodic stencil of two arrays."""
    import shardc

    jnp = jax.numpy

    def step(u: Any, v: Any) -> Any:
        def turn(_: Any, state: Any) -> Any:
            u, v = state
            v = v + 0.1 * (sum(jnp.roll(u, k, d) for d in (0, 1) for k in (1, -1)) - 4 * u)
            return u + 0.1 * v, v

        return jax.lax.fori_loop(0, 10, turn, (u, v))

    grid = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    given = shardc.from_jax(jax.jit(step), grid, grid)
    return given.annotate({"u": shardc.P("x"), "v": shardc.P("x")}, mesh=MESH).propagate().module


PROGRAMS: dict[str, Callable[[], Module]] = {
    "little compute": lambda: layers(24, 1024, 64),
    "transfers beside much": lambda: layers(8, 2048, 4096),
    "few and wide": lambda: layers(8, 4096, 512),
    "computed again": lambda: layers(24, 1024, 8192, remat=True),
    "few turns": lambda: few_turns(2, 2048, 8192),
    "many turns": lambda: few_turns(12, 2048, 8192),
}


def made(module: Module, machine: str, choice: Choice) -> Module:

    options = PartitionOptions(pipelined_loops=choice)
    judge = judge_by_simulation(machine, Config())
    return partition(module, machine=load_machine(machine), options=options, judge=judge)


def seconds(module: Module, machine: str) -> float:
    return judge_by_simulation(machine, Config())(module).cost[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_auto_is_never_slower(name: str) -> None:
    module = PROGRAMS[name]()
    for machine in MACHINES:
        plain, chosen = (seconds(made(module, machine, choice), machine) for choice in ("never", "auto"))
        assert chosen <= plain * (1 + 1e-9), machine


@pytest.mark.parametrize("name", ["little compute", "transfers beside much"])
def test_pipelining_that_does_not_pay_is_left_out(name: str) -> None:
    """Everything that can be pipelined makes these slower, by a tenth and more."""
    module = PROGRAMS[name]()
    all_of_it, chosen = (seconds(made(module, "h100-dgx", choice), "h100-dgx") for choice in ("always", "auto"))
    assert all_of_it > 1.1 * chosen


def test_pipelining_that_pays_is_done() -> None:
    for name, machine in (("few and wide", "h100-dgx"), ("computed again", "a100-dgx")):
        module = PROGRAMS[name]()
        plain, chosen = (seconds(made(module, machine, choice), machine) for choice in ("never", "auto"))
        assert chosen < 0.95 * plain


def test_halos_are_wider_where_that_pays() -> None:
    """Models count an iteration as one kernel; the step's clock knows how many there are."""
    for module, machine, widens in ((heat(), "h100-dgx", True), (waves(), "host", False)):
        widened, chosen = (made(module, machine, choice) for choice in ("never", "auto"))
        counts = [max(c["count"] for c in build_report(m)["collectives"]) for m in (widened, chosen)]
        assert counts[0] < 10
        assert (counts[1] < 10) == widens
        assert seconds(chosen, machine) <= seconds(widened, machine)


def test_a_hoist_stands_in_front_of_a_loop_where_it_is_hidden() -> None:
    """Two turns hide the gather that would stand in front of them; twelve would send it twelve times for that."""
    few, many = few_turns(2, 2048, 8192), few_turns(12, 2048, 8192)
    plain, chosen = (made(few, "h100-dgx", choice) for choice in ("never", "auto"))
    assert seconds(chosen, "h100-dgx") < 0.9 * seconds(plain, "h100-dgx")
    gathers = [(c["op"], c["count"]) for m in (plain, chosen) for c in build_report(m)["collectives"]]
    assert {("all-gather", 1), ("all-gather", 2)} <= set(gathers)
    (gathered,) = [c for c in build_report(made(many, "h100-dgx", "auto"))["collectives"] if c["op"] == "all-gather"]
    assert gathered["count"] == 1


def test_results_and_texts_are_the_same_each_time() -> None:
    """Whatever the judge likes: more state, less state, one loop of the two."""
    machine, before = load_machine("h100-dgx"), backward(wide=8192)
    passes = optimisation(machine, PartitionOptions())

    def run(module: Module, some: Sequence[Pass]) -> Module:
        return run_pipeline(module, some, Config())

    found = set()
    for sign in (1, -1):

        def judge(m: Module, sign: int = sign) -> Judgement:
            (loop,) = [i for i in m.instructions() if i.opcode == "while"]
            return Judgement((100.0 + sign * len(loop.shape.elements),), 0.0)

        made = [finish_loops(before, passes, run, judge=judge, room=1e12) for _ in range(2)]
        texts = [print_module(module) for module, _ in made]
        assert texts[0] == texts[1] == print_module(run(before, made[0][1]))
        found.add(texts[0])
    assert len(found) == 2
    small = backward(wide=8)
    always = optimisation(machine, PartitionOptions(pipelined_loops="always"))
    same(small, finish_loops(small, always, run, judge=lambda m: Judgement((1.0,), 0.0), room=1e12)[0])


def test_what_cannot_be_judged_goes_by_models() -> None:

    module, machine = PROGRAMS["few and wide"](), load_machine("h100-dgx")

    def judge(m: Module) -> Judgement:
        raise InputError("the mesh does not fit")

    assert len(list(partition(module, machine=machine, judge=judge).instructions())) == len(
        list(partition(module, machine=machine).instructions())
    )


def test_dumps_show_what_was_chosen(tmp_path: Path) -> None:
    config = Config(dump_to=tmp_path)
    judge = judge_by_simulation("h100-dgx", Config())
    local = partition(PROGRAMS["few turns"](), config, machine=load_machine("h100-dgx"), judge=judge)
    (last,) = tmp_path.glob("*combine-collectives.hlo")
    assert last.read_text() == print_module(local)
