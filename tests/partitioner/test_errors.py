"""What cannot be partitioned says what, where and what to do."""

from __future__ import annotations

import pytest
from partition_support import with_shardings

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.groups import ListPairs
from shardc.hlo.ir.ir import Metadata
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.partition import partition
from shardc.partitioner.rules import RULES

MESH = Mesh({"x": 2})


def test_every_opcode_has_a_rule_or_a_reason() -> None:
    assert set(RULES) == set(OPS)


def replicated(b: Builder):  # type: ignore[no-untyped-def]
    return with_shardings(b.build(), MESH, lambda i: Sharding.replicate(MESH, i.shape.rank))


def test_a_program_without_a_mesh() -> None:
    b = Builder("main")
    b.parameter(array_shape("f32", 4))
    with pytest.raises(UnsupportedError, match="no mesh"):
        partition(make_module("m", b.build()))


def test_a_partitioned_program() -> None:
    b = Builder("main")
    b.parameter(array_shape("f32", 4))
    with pytest.raises(UnsupportedError, match="already partitioned"):
        partition(partition(replicated(b)))


def test_collectives_and_manual_computations_name_their_source() -> None:
    b = Builder("main", metadata=Metadata(source_file="model.py", source_line=3))
    x = b.parameter(array_shape("f32", 4))
    b.add("custom-call", x, shape=array_shape("f32", 2), custom_call_target="SPMDFullToShardShape", name="enter")
    with pytest.raises(UnsupportedError, match="split 4 into 1") as e:
        partition(replicated(b))
    assert "model.py:3" in str(e.value)
    b = Builder("main", metadata=Metadata(source_file="model.py", source_line=4))
    x = b.parameter(array_shape("f32", 4))
    b.add("collective-permute", x, shape=x.shape, source_target_pairs=ListPairs(((0, 1),)))
    with pytest.raises(UnsupportedError, match="manual computation") as e:
        partition(replicated(b))
    assert "model.py:4" in str(e.value)
