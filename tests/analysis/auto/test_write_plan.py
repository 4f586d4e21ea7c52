"""Plans as text: what is pasted, or given as a file, leads to the layouts that were chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.auto.write_plan import own_plan, write_plan
from shardc.analysis.auto.written_plan import PlanSpec, WrittenPlan, is_written_plan
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.partitioner.program import SourceProgram
from shardc.sharding.notations.annotate import read_annotations
from shardc.sharding.notations.partition_spec import spec_to_sharding
from shardc.sharding.notations.source_names import source_name, source_place

jax = pytest.importorskip("jax")
jnp = jax.numpy

WANTED = {
    "state['layers'][0]['up']": P(None, "model"),
    "state['layers'][1]['up']": P(None, "model"),
    "state['layers'][0]['down']": P("model", None),
    "state['layers'][1]['down']": P("model", None),
    "x": P("data", None),
}


def step(state: Any, x: Any) -> Any:
    def loss(state: Any) -> Any:
        h = x
        for w in state["layers"]:
            h = h + jnp.tanh(h @ w["up"]) @ w["down"]
        return (h**2).mean()

    return jax.tree.map(lambda a, b: a - 0.1 * b, state, jax.grad(loss)(state))


def arguments() -> tuple[Any, Any]:
    def array(*dims: int) -> Any:
        return jax.ShapeDtypeStruct(dims, "float32")

    return {"layers": [{"up": array(16, 32), "down": array(32, 16)} for _ in range(2)]}, array(8, 16)


def shardings(program: SourceProgram) -> dict[tuple[str, int], Sharding]:
    """The sharding of every value, by the name of its instruction and its leaf."""
    outcome = program.propagate().outcome
    assert outcome is not None
    return {(i.name, leaf): s for (i, leaf), s in zip(outcome.graph.origin, outcome.shardings, strict=True)}


def layouts(program: SourceProgram) -> dict[tuple[str, int], object]:
    found = shardings(program).items()
    return {k: tuple(d.axes for d in s.dims) for k, s in found if not k[0].endswith(".constraint")}


def written(bare: SourceProgram, wanted: SourceProgram) -> WrittenPlan:
    """The plan for ``bare`` to have the layouts of ``wanted``."""
    propagated, found = bare.propagate(), shardings(wanted)
    assert propagated.outcome is not None
    return write_plan(propagated, [found[i.name, leaf] for i, leaf in propagated.outcome.graph.origin])


@pytest.fixture(scope="module")
def bare() -> Any:
    return shardc.from_jax(jax.jit(step), *arguments()).annotate({}, mesh=Mesh({"data": 2, "model": 4}))


@pytest.fixture(scope="module")
def wanted(bare: Any) -> Any:
    return bare.annotate(WANTED)


@pytest.fixture(scope="module")
def plan(bare: Any, wanted: Any) -> WrittenPlan:
    return written(bare, wanted)


def test_a_plan_says_what_is_needed_only(plan: WrittenPlan) -> None:
    """Columns of one weight of each layer and the batch: all else follows."""
    said = {n: s.partition_spec for s in plan.specs for n in s.names}
    assert said == {"x": 'P("data")', "state['layers'][*]['down']": 'P("model")'}
    assert all("values follow from it; without it" in s.reason for s in plan.specs)


def test_a_file_of_annotations_leads_to_the_layouts(plan: WrittenPlan, bare: Any, wanted: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan.as_toml())
    read = read_annotations(path)
    assert read.mesh == Mesh({"data": 2, "model": 4})
    assert layouts(bare.annotate(read.specs)) == layouts(wanted)


def test_pasted_code_leads_to_the_layouts(plan: WrittenPlan, wanted: Any) -> None:
    code = plan.as_jax().replace("jax.make_mesh((2, 4)", "jax.sharding.AbstractMesh((2, 4)")
    pasted: dict[str, Any] = {}
    exec(code, pasted)
    state, x = arguments()
    jitted = jax.jit(step, in_shardings=pasted["in_shardings"](state=state, x=x))
    assert layouts(shardc.from_jax(jitted, state, x)) == layouts(wanted)
    assert "in_shardings(state=state, x=x)" in code
    with pytest.raises(TypeError, match="no argument 'y'; it has state, x"):
        pasted["in_shardings"](state=state, y=x)


def test_code_of_a_plan_that_splits_nothing_is_for_all_devices(bare: Any) -> None:
    code = own_plan(bare.propagate()).as_jax().replace("jax.make_mesh(", "jax.sharding.AbstractMesh(")
    pasted: dict[str, Any] = {}
    exec(code, pasted)
    state, x = arguments()
    for sharding in jax.tree.leaves(pasted["in_shardings"](state=state, x=x)):
        assert sharding.spec == jax.P() and sharding.mesh.size == 8


def test_an_argument_says_it_in_place_of_what_is_made_of_it() -> None:
    """Tokens take no memory, so a plan may have them in any layout; people write how they lie."""

    def embedded(table: Any, tokens: Any) -> Any:
        return jnp.tanh(table[tokens])

    array = jax.ShapeDtypeStruct
    bare = shardc.from_jax(jax.jit(embedded), array((64, 8192), "float32"), array((128,), "int32"))
    bare = bare.annotate({}, mesh=Mesh({"data": 4}))
    (gather,) = (i.name for i in bare.module.instructions() if i.opcode == "gather")
    found, propagated = shardings(bare.annotate({gather: P("data")})), bare.propagate()
    assert propagated.outcome is not None
    wanted = [found[i.name, leaf] for i, leaf in propagated.outcome.graph.origin]
    wanted = [replace(s, dims=(DimSharding(),)) if s.rank == 1 else s for s in wanted]
    plan = write_plan(propagated, wanted)
    assert {n: s.partition_spec for s in plan.specs for n in s.names} == {"tokens": 'P("data")'}


@pytest.mark.parametrize(
    "given", [{}, {"x": P("data")}, {"v": P("data")}, {n: P("data") for n in ("w", "v", "x")}], ids=str
)
@pytest.mark.parametrize("spec", [P("data"), P(None, "data")], ids=str)
def test_pasted_constraints_do_what_was_told_of_them(given: dict[str, P], spec: P) -> None:
    """Also where the partitioner would rather have the value otherwise, and nothing of its gradient."""

    def updated(mark: Any) -> Any:
        def loss(w: Any, v: Any, x: Any) -> Any:
            return ((mark(jnp.tanh(x @ w)) @ v) ** 2).mean()

        return jax.jit(jax.grad(loss, (0, 1)))

    mesh, shapes = Mesh({"data": 4}), ((256, 512), (512, 256), (1024, 256))
    inputs = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
    bare = shardc.from_jax(updated(lambda x: x), *inputs).annotate(given, mesh=mesh)
    (tanh,) = (i for i in bare.module.instructions() if i.opcode == "tanh")
    said = bare.annotate({source_name(tanh): spec})
    written = PlanSpec("value", (source_name(tanh),), spec_to_sharding(spec, mesh, 2), source_place(tanh))
    pasted: dict[str, Any] = {}
    exec(
        WrittenPlan(mesh, [written], ("w", "v", "x")).as_jax().replace("jax.make_mesh", "jax.sharding.AbstractMesh"),
        pasted,
    )
    again = shardc.from_jax(updated(lambda x: pasted["constrained"](x, jax.P(*spec))), *inputs).annotate(
        given, mesh=mesh
    )
    assert again.partition().report()["wire_bytes"] == said.partition().report()["wire_bytes"] > 0


def test_what_loops_do_with_slices_is_no_place_for_a_constraint() -> None:
    """No expression makes them: an argument says the same."""

    def stacked(x: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h + x), h * x), jnp.zeros((64,)), x)[1]

    bare = shardc.from_jax(jax.jit(stacked), jax.ShapeDtypeStruct((16, 64), "float32"))
    bare = bare.annotate({}, mesh=Mesh({"data": 4}))
    slices = [i.name for i in bare.module.instructions() if i.opcode in ("dynamic-slice", "dynamic-update-slice")]
    assert len(slices) == 2
    for name in slices:
        plan = written(bare, bare.annotate({name: P(None, "data")}))
        assert [s.names for s in plan.specs] in ([("x",)], [("result",)])


def test_constraints_stand_at_their_lines() -> None:
    """Weights split over the axis of the batch: what lies inside has to be said."""

    def deep(w: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(h @ w), None

        return jax.lax.scan(layer, x, w)[0].sum()

    array = jax.ShapeDtypeStruct
    bare = shardc.from_jax(jax.jit(deep), array((3, 32, 32), "float32"), array((64, 32), "float32"))
    bare = bare.annotate({}, mesh=Mesh({"data": 4}))
    dots = [i.name for i in bare.module.instructions() if i.opcode == "dot"]
    wanted = bare.annotate({"w": P(None, "data"), "x": P("data"), **dict.fromkeys(dots, P("data", None))})
    plan = written(bare, wanted)
    assert layouts(bare.annotate(plan.annotations())) == layouts(wanted)
    inside = [s for s in plan.specs if s.kind == "value"]
    assert all(n.startswith(f"{Path(__file__).name}:") for s in inside for n in s.names)
    code = plan.as_jax()
    for s in inside:
        assert Path(__file__).name in s.place
        assert f"# {s.place} ({s.what}): x is what this makes\n" in code


def test_written_plans_are_known_again(plan: WrittenPlan) -> None:
    inside = replace(plan, specs=[*plan.specs, replace(plan.specs[0], kind="value", place="step.py:3", what="dot")])
    results = replace(plan, specs=[*plan.specs, replace(plan.specs[0], kind="result", names=("result[0]",))])
    for code in (made for p in (plan, inside, results) for made in (p.as_jax(), p.as_annotations())):
        assert is_written_plan(code)
        assert not is_written_plan(code + "train()\n")
        assert not is_written_plan("import os\n" + code)
    assert not is_written_plan("import jax\n")
