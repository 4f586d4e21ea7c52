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
