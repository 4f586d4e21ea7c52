"""Propagation: what comes out, through which edges, and why."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.ir.types import array_shape, tuple_shape
from shardc.sharding.propagate import Propagation, PropagationOptions, propagate
from shardc.sharding.provenance.explain_value import explain_value

MESH = Mesh({"a": 2, "b": 4})
MATRIX = array_shape("f32", 8, 16)


def sharded(*dims: str | None, closed: bool = True) -> Sharding:
    s = Sharding.of(MESH, *dims)
    return Sharding(MESH, tuple(DimSharding(d.axes, closed) for d in s.dims))


def finish(b: Builder, root: Instruction | None = None, mesh: Mesh | None = MESH) -> Module:
    return make_module("m", b.build(root), mesh=mesh)


def shown(p: Propagation, name: str) -> str:
    for i in p.module.instructions():
        if i.name == name:
            leaves = i.leaf_shardings()
            return " ".join(map(str, leaves)) if i.shape.is_tuple else str(leaves[0])
    raise KeyError(name)


def assert_complete(module: Module) -> None:
    """Every instruction that values flow through has a closed sharding over the module's mesh."""
    assert module.mesh is not None
    for i in module.entry:
        for s, shape in zip(i.leaf_shardings(), i.shape.leaves(), strict=True):
            assert s.mesh == module.mesh
            assert s.rank == shape.rank
            assert all(d.closed and not d.priority for d in s.dims)
            assert not s.replicated


def test_a_matrix_product_spreads_along_its_factors() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8, 16), "x", sharding=sharded("a", None))
    w = b.parameter(array_shape("f32", 16, 32), "w", sharding=sharded(None, "b"))
    y = b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,), name="y")
    b.add("tanh", y, name="z")
    p = propagate(finish(b))
    assert shown(p, "y") == shown(p, "z") == "[{a}, {b}]"
    assert_complete(p.module)


def test_contracted_dimension_reaches_the_other_operand_only() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8, 16), "x", sharding=sharded(None, "b"))
    w = b.parameter(array_shape("f32", 16, 32), "w")
    b.add("dot", x, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,), name="y")
    p = propagate(finish(b))
    assert shown(p, "w") == "[{b}, {}]"
    assert shown(p, "y") == "[{}, {}]"


def test_closed_and_replicated_are_respected() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x", sharding=sharded("a", "b"))
    kept = Sharding(MESH, (DimSharding((), False),) * 2, replicated=(AxisRef("b"),))
    y = b.add("negate", x, name="y", sharding=kept)
    b.add("negate", y, name="z", sharding=sharded(None, None))
    p = propagate(finish(b))
    assert shown(p, "y") == "[{a}, {}]"
    assert shown(p, "z") == "[{}, {}]"


def test_conflict_takes_the_compatible_major_prefix() -> None:
    mesh = Mesh({"a": 2, "b": 2, "c": 2})
    b = Builder("main")
    x = b.parameter(array_shape("f32", 8), "x", sharding=Sharding.of(mesh, ("a", "b")))
    y = b.parameter(array_shape("f32", 8), "y", sharding=Sharding.of(mesh, ("a", "c")))
    b.add("add", x, y, name="z")
    p = propagate(finish(b, mesh=mesh))
    assert shown(p, "z") == "[{a}]"
    assert any(
        "conflict" in line and "{a, b}" in line and "{a, c}" in line for line in explain_value(p.provenance, "x")
    )


def test_user_priorities_come_first() -> None:
    b = Builder("main")
    late = Sharding(MESH, (DimSharding((AxisRef("a"),), False, 1), DimSharding((), False)))
    x = b.parameter(MATRIX, "x", sharding=late)
    y = b.parameter(MATRIX, "y", sharding=sharded("b", None))
    b.add("add", x, y, name="z")
    p = propagate(finish(b))
    assert shown(p, "z") == "[{b}, {}]"
    assert shown(p, "x") == "[{a}, {}]"


def test_reshape_carries_sub_axes() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 32), "x", sharding=sharded("b"))
    y = b.add("reshape", x, shape=array_shape("f32", 2, 16), name="y")
    b.add("reshape", y, shape=array_shape("f32", 32), name="z")
    p = propagate(finish(b))
    assert shown(p, "y") == "[{b:(1)2}, {b:(2)2}]"
    assert shown(p, "z") == "[{b}]"
    whole = propagate(finish(b), options=PropagationOptions(conservative=True))
    assert shown(whole, "y") == "[{}, {}]"


def _loop(sharding: AnySharding) -> Module:
    carry = tuple_shape(array_shape("s32"), MATRIX)
    c = Builder("condition")
    p = c.parameter(carry, "c")
    n = c.add("get-tuple-element", p, index=0)
    condition = c.build(c.add("compare", n, c.constant(3, "s32"), direction="LT"))
    d = Builder("body")
    p = d.parameter(carry, "p")
    n, x = d.add("get-tuple-element", p, index=0), d.add("get-tuple-element", p, index=1, name="inside")
    body = d.build(d.add("tuple", d.add("add", n, d.constant(1, "s32")), d.add("sine", x), name="next"))
    b = Builder("main")
    start = b.add("negate", b.parameter(MATRIX, "x"), name="start")
    w = b.add("while", b.add("tuple", b.constant(0, "s32"), start), condition=condition, body=body, name="w")
    out = b.add("get-tuple-element", w, index=1)
    return finish(b, b.add("tanh", out, name="out", sharding=sharding))


def test_loop_carry_is_one_value() -> None:
    p = propagate(_loop(sharded("a", "b")))
    assert shown(p, "start") == shown(p, "inside") == "[{a}, {b}]"
    assert shown(p, "w") == shown(p, "next") == shown(p, "p") == shown(p, "c") == "[] [{a}, {b}]"
    assert_complete(p.module)
    lines = explain_value(p.provenance, "start")
    assert any("loop carry %w" in line for line in lines)
    assert lines[-1].endswith("a by annotation") or "by annotation" in lines[-1]


def _branch(opcode: str, name: str) -> Computation:
    b = Builder(name)
    return b.build(b.add(opcode, b.parameter(MATRIX, "p"), name=f"{name}.out"))


def test_conditional_joins_its_branches() -> None:
    b = Builder("main")
    flag = b.parameter(array_shape("pred"), "flag")
    x, y = b.parameter(MATRIX, "x", sharding=sharded("a", None)), b.parameter(MATRIX, "y")
    b.add("conditional", flag, x, y, true_computation=_branch("sine", "t"), false_computation=_branch("cosine", "f"),
          name="c")  # fmt: skip
    p = propagate(finish(b))
    assert shown(p, "c") == shown(p, "t.out") == shown(p, "f.out") == shown(p, "y") == "[{a}, {}]"


def test_calls_are_laid_out_per_call_site_and_joined_when_equal() -> None:
    f = _branch("sine", "f")
    b = Builder("main")
    x = b.parameter(MATRIX, "x", sharding=sharded("a", None))
    y = b.parameter(MATRIX, "y", sharding=sharded(None, "b"))
    calls = [b.add("call", v, to_apply=f, name=f"call{n}") for n, v in enumerate((x, y, x))]
    p = propagate(finish(b, b.add("tuple", *calls)))
    callees = [i.attrs["to_apply"] for i in p.module.entry if i.opcode == "call"]
    assert callees[0] is callees[2]
    assert callees[0] is not callees[1]
    assert [str(c.root.sharding) for c in callees[:2]] == ["[{a}, {}]", "[{}, {b}]"]
    assert len(p.module.computations) == 3
    assert len({c.name for c in p.module.computations}) == 3


def test_shared_constants_do_not_glue_their_users_together() -> None:
    b = Builder("main")
    ones = b.add("broadcast", b.constant(1.0, "f32"), shape=MATRIX, dimensions=(), name="ones")
    x = b.add("add", b.parameter(MATRIX, "x", sharding=sharded("a", None)), ones)
    y = b.add("add", b.parameter(MATRIX, "y"), ones, name="y")
    z = b.add("add", b.parameter(MATRIX, "z", sharding=sharded("a", None)), ones)
    p = propagate(finish(b, b.add("tuple", x, y, z)))
    assert shown(p, "y") == "[{}, {}]"
    copies = [i for i in p.module.entry if i.opcode == "broadcast"]
    assert sorted(str(i.sharding) for i in copies) == ["[{a}, {}]", "[{}, {}]"]
    assert len({i.name for i in copies}) == 2


def test_a_constraint_pulls_its_operand_and_its_users_follow() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x")
    y = b.add("sine", x, name="y")
    c = b.add("custom-call", y, shape=MATRIX, custom_call_target="Sharding", sharding=sharded("a", None), name="c")
    b.add("cosine", c, name="z")
    p = propagate(finish(b))
    assert shown(p, "y") == shown(p, "c") == shown(p, "z") == shown(p, "x") == "[{a}, {}]"


def test_dead_code_decides_nothing() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 16), "x")
    w = b.parameter(MATRIX, "w", sharding=sharded(None, "b"))
    b.add("dot", w, x, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,), name="dead")
    p = propagate(finish(b, b.add("negate", x, name="out")))
    assert shown(p, "out") == "[{}]"


def test_results_of_open_shardings_stay_even_and_annotated_ones_may_be_uneven() -> None:
    b = Builder("main")
    x = b.parameter(array_shape("f32", 6), "x", sharding=sharded("b"))
    y = b.add("sine", x, name="y")
    p = propagate(finish(b, b.add("tuple", y, name="out")))
    assert shown(p, "x") == shown(p, "y") == "[{b}]"
    assert shown(p, "out") == "[{b:(1)2}]"


def test_axes_of_size_one_are_left_out() -> None:
    mesh = Mesh({"a": 1, "b": 2})
    b = Builder("main")
    b.parameter(MATRIX, "x", sharding=Sharding.of(mesh, ("a", "b"), None))
    assert shown(propagate(finish(b, mesh=mesh)), "x") == "[{b}, {}]"


def test_tile_shardings_of_hlo_text() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x", sharding=TileSharding("tiled", (2, 1, 4), (), (8,), (), ("replicated",), True))
    y = b.parameter(MATRIX, "y", sharding=TileSharding("tiled", (1, 4, 2), (), (2, 4), (1, 0), ("replicated",), True))
    b.add("add", x, y, name="z")
    p = propagate(finish(b, mesh=None))
    assert p.module.mesh == Mesh({"axis_0": 2, "axis_1": 4})
    assert shown(p, "z") == "[{axis_0}, {axis_1}]"


def test_a_program_without_annotations_is_replicated() -> None:
    b = Builder("main")
    b.add("negate", b.parameter(MATRIX, "x"), name="y")
    p = propagate(finish(b, mesh=None))
    assert p.module.mesh == Mesh()
    assert_complete(p.module)


def test_reducers_keep_no_shardings_and_their_reduce_does() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x", sharding=sharded("a", "b"))
    total = b.add(
        "reduce", x, b.constant(0.0, "f32"), dimensions=(1,), to_apply=binary_computation("add", "f32"), name="r"
    )
    p = propagate(finish(b, total))
    assert shown(p, "r") == "[{a}]"
    assert all(i.sharding is None for i in p.module.entry.root.attrs["to_apply"])


def test_pairs_of_collectives_in_a_global_program_are_their_operation() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x")
    start = Instruction("all-reduce-start", MATRIX, (x,), {"to_apply": binary_computation("add", "f32")}, name="ar")
    y = b.append(Instruction("all-reduce-done", MATRIX, (b.append(start),)))
    assert [i.opcode for i in propagate(finish(b, y)).module.entry] == ["parameter", "all-reduce"]
    alone = Builder("main")
    alone.append(start.replace(operands=(alone.parameter(MATRIX, "x"),)))
    with pytest.raises(UnsupportedError, match="all-reduce-start") as caught:
        propagate(finish(alone, alone.instructions[-1]))
    assert "%ar" in str(caught.value)


def test_propagation_is_deterministic() -> None:
    texts = []
    for _ in range(2):
        p = propagate(_loop(sharded("a", "b")))
        texts.append(
            [(i.name, str(i.sharding)) for i in p.module.instructions()] + [str(s) for s in p.provenance.steps]
        )
    assert texts[0] == texts[1]


def test_explain_knows_near_names_and_reasons_are_data() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "weights", sharding=sharded("a", None))
    b.add("sine", x, name="y")
    p = propagate(finish(b).with_(arg_names=("w['1']",)))
    lines = explain_value(p.provenance, "y")
    assert lines[0] == "%y: [{a}, {}]"
    assert "from w['1'] dimension 0 through sine %y, factor i of ([i, j])->([i, j]), change 1" in lines[1]
    assert explain_value(p.provenance, "w['1']")[0] == "w['1']: [{a}, {}]"
    with pytest.raises(AnnotationError, match="no value is named") as caught:
        explain_value(p.provenance, "weight")
    assert "weights" in str(caught.value)
    value = p.provenance.graph.values[p.provenance.names["y"]][0]
    reason = p.provenance.reasons(value)[0]
    assert (reason.dimension, reason.axes, reason.step, reason.source) == (0, ("a",), 1, "w['1']")


def test_basic_strategy_stops_where_any_tensor_cannot_follow() -> None:
    b = Builder("main")
    x = b.parameter(MATRIX, "x", sharding=sharded("a", None))
    y = b.parameter(MATRIX, "y", sharding=sharded(None, "a"))
    b.add("add", x, y, name="z")
    assert shown(propagate(finish(b), options=PropagationOptions(strategy="basic")), "z") == "[{}, {}]"
    assert shown(propagate(finish(b)), "z") == "[{a}, {}]"
