"""shardc's arrays and shapes as arguments of JAX functions: their layouts count, and are those of the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.hlo.errors import AnnotationError

jax = pytest.importorskip("jax")
jnp = jax.numpy

MESH = Mesh({"d": 4})
SPLIT = shardc.array(np.arange(8, dtype=np.float32), (MESH, P("d")))


def collectives(program: Any) -> list[str]:
    return [c["op"] for c in program.partition().report()["collectives"]]


def total(x: Any) -> Any:
    return jnp.sum(x)


@pytest.mark.parametrize("sharding", [(MESH, P("d")), SPLIT.sharding], ids=["pair", "sharding"])
@pytest.mark.parametrize("size", [8, 10], ids=["even", "uneven"])
def test_the_sharding_of_a_shape_counts(sharding: Any, size: int) -> None:
    x = ShapeDtype((size,), np.float32, sharding)
    assert collectives(shardc.from_jax(total, x)) == ["all-reduce"]
    assert collectives(shardc.jit(total).program(x)) == ["all-reduce"]
    assert collectives(shardc.jit(total, mesh=MESH).program(x)) == ["all-reduce"]


def test_a_spec_alone_needs_a_mesh() -> None:
    x = ShapeDtype((8,), np.float32, P("d"))
    assert collectives(shardc.jit(total, mesh=MESH).program(x)) == ["all-reduce"]
    with pytest.raises(AnnotationError, match="has no mesh"):
        shardc.from_jax(total, x)


@pytest.mark.parametrize(
    ("sharding", "what"),
    [("d", "is not a sharding"), ((MESH, P("zz")), "no axis 'zz'"), ((Mesh({"d": 2}), P("d")), "over the mesh d=2")],
)
def test_what_is_no_sharding_over_the_mesh_is_refused(sharding: Any, what: str) -> None:
    with pytest.raises(AnnotationError, match=what):
        shardc.jit(total, mesh=MESH).program(ShapeDtype((8,), np.float32, sharding))


def test_an_array_brings_its_mesh() -> None:
    assert collectives(shardc.from_jax(total, SPLIT)) == ["all-reduce"]
    double = shardc.jit(lambda x: x * 2)
    made = double(SPLIT)
    assert made.sharding == SPLIT.sharding
    np.testing.assert_array_equal(np.asarray(made), np.arange(8) * 2)
    whole = double(np.arange(8, dtype=np.float32))  # the same function, without a mesh
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(made))


def test_arrays_over_several_meshes_need_one() -> None:
    other = shardc.array(np.arange(8, dtype=np.float32), (Mesh({"e": 2}), P("e")))
    with pytest.raises(AnnotationError, match="over several meshes: d=4 and e=2"):
        shardc.jit(lambda x, y: x + y)(SPLIT, other)
    made = shardc.jit(lambda x, y: x + y, mesh=MESH)(SPLIT, other)
    np.testing.assert_array_equal(np.asarray(made), np.arange(8) * 2)


def test_the_functions_own_shardings_stay() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("d",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    function = jax.jit(lambda x: x * 2, in_shardings=rows, out_shardings=rows)
    whole = ShapeDtype((8,), np.float32, (MESH, P()))
    (parameter,) = shardc.from_jax(function, whole).module.parameters
    assert str(parameter.sharding) == "[{d}]"


def test_jaxs_arrays_bring_their_mesh() -> None:
    split = shardc.jit(lambda x: x * 1, mesh=MESH, in_shardings=P("d"))(np.arange(8, dtype=np.float32))
    made = shardc.jit(lambda tree, n: tree["a"] * n)({"a": split}, 2.0)
    assert made.sharding.spec == jax.sharding.PartitionSpec("d")
    np.testing.assert_array_equal(np.asarray(made), np.arange(8) * 2)
    both = shardc.jit(lambda x, y: x + y)(split, SPLIT)
    assert both.sharding == SPLIT.sharding
    for mesh in ({"d": 8}, {"a": 2, "b": 2}):
        other = shardc.jit(lambda x: x * 1, mesh=Mesh(mesh), in_shardings=P(tuple(mesh)))(
            np.arange(8, dtype=np.float32)
        )
        with pytest.raises(AnnotationError, match="over several meshes"):
            shardc.jit(lambda x, y: x + y)(other, SPLIT)
        moved = shardc.jit(lambda x, y: x + y, mesh=MESH)
        np.testing.assert_array_equal(np.asarray(moved(other, SPLIT)), np.arange(8) * 2)
        assert moved.program(other, np.ones(8, np.float32)).mesh == MESH


def test_a_shape_over_another_mesh_is_refused() -> None:
    rows = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((8,), ("d",)), jax.sharding.PartitionSpec("d"))
    with pytest.raises(AnnotationError, match="over the mesh d=8, but mesh= is d=4"):
        shardc.jit(total, mesh=MESH).program(jax.ShapeDtypeStruct((8,), np.float32, sharding=rows))


def test_a_function_with_a_mesh_inside_of_one_without() -> None:
    inner = shardc.jit(lambda x: x * 2, mesh=MESH, in_shardings=P("d"))
    x = np.arange(8, dtype=np.float32)
    for given in (x, SPLIT):
        np.testing.assert_array_equal(np.asarray(shardc.jit(lambda x: inner(x) + 1)(given)), 2 * x + 1)
    slope = shardc.jit(jax.grad(lambda y: inner(y).sum()))(x)
    np.testing.assert_array_equal(np.asarray(slope), np.full(8, 2.0))


def test_none_among_in_shardings_leaves_the_arguments_own() -> None:
    step = shardc.jit(lambda a, b: a * 2 + b * 0, mesh=MESH, in_shardings=(None, P()))
    x = np.ones(8, np.float32)
    split = shardc.jit(lambda x: x * 1, mesh=MESH, in_shardings=P("d"))(x)
    for given in (SPLIT, split, ShapeDtype((8,), np.float32, P("d"))):
        assert [str(p.sharding) for p in step.program(given, x).module.parameters] == ["[{d}]", "[{}]"]
    assert step(SPLIT, SPLIT).sharding == SPLIT.sharding
    assert str(step(x, SPLIT).sharding) != str(SPLIT.sharding)


@pytest.mark.parametrize("options", [{"static_argnames": "n"}, {"static_argnums": 1}], ids=str)
def test_static_arguments_by_name_beside_a_layout(options: Any) -> None:
    program = shardc.from_jax(jax.jit(lambda x, n: x.sum() * n, **options), SPLIT, n=2)
    assert collectives(program) == ["all-reduce"]


def test_static_arguments_stay_as_they_are() -> None:
    seen = []

    def double(x: Any, spec: Any) -> Any:
        seen.append(spec)
        return x * spec.shape[0]

    spec = ShapeDtype((2,), "float32", P("k"))
    np.testing.assert_array_equal(np.asarray(shardc.jit(double, static_argnums=1)(SPLIT, spec)), np.arange(8) * 2)
    shardc.from_jax(jax.jit(double, static_argnums=1), SPLIT, spec)
    assert all(s is spec for s in seen)


def test_a_function_is_traced_under_the_mesh_of_its_arguments() -> None:
    def constrained(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, jax.sharding.PartitionSpec("d"))

    assert shardc.from_jax(constrained, SPLIT).mesh == MESH


def test_our_shardings_are_in_and_out_shardings() -> None:
    x = np.arange(8, dtype=np.float32)
    for options in ({"in_shardings": SPLIT.sharding}, {"out_shardings": SPLIT.sharding}):
        made = shardc.jit(lambda x: x * 2, **options)(x)
        assert len(made.sharding.device_set) == 4
        np.testing.assert_array_equal(np.asarray(made), x * 2)
