"""Shardings that bring their mesh: pairs, and JAX's over abstract meshes, where no ``mesh=`` is given."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError

X = np.ones((8, 4), np.float32)
MESH = Mesh({"data": 2, "model": 2})
ABSTRACT = AbstractMesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
SHARDINGS = [(MESH, P("data")), NamedSharding(ABSTRACT, PartitionSpec("data"))]


def more(a: Any) -> Any:
    return a + 1


@pytest.mark.parametrize("sharding", SHARDINGS, ids=["pair", "of JAX"])
def test_the_mesh_is_that_of_the_sharding(sharding: Any) -> None:
    jitted = shardc.jit(more, in_shardings=(sharding,))
    assert isinstance(jitted(X), jax.Array) and jitted.partitioned(X).num_devices == 4
    np.testing.assert_array_equal(np.asarray(jitted(X)), X + 1)
    assert shardc.trace(more, X, in_shardings=(sharding,)).mesh == MESH
    assert shardc.trace(more, X).annotate({"a": sharding}).mesh == MESH


def test_a_mesh_without_words_of_missing_sizes(caplog: pytest.LogCaptureFixture) -> None:
    shardc.trace(more, X, in_shardings=(SHARDINGS[1],))
    assert not caplog.records
    shardc.trace(more, X, in_shardings=(P("data"),))
    assert "axes have size 1 until" in caplog.text


def test_another_mesh_is_refused() -> None:
    with pytest.raises(AnnotationError, match=r"over the mesh data=2,model=2, but mesh= is d=4\n.*in_shardings\[0\]"):
        shardc.jit(more, mesh=Mesh({"d": 4}), in_shardings=((MESH, P("data")),))
