"""The stages at a service have what the stages here have, and say the same."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import shardc
from shardc import Mesh
from shardc.hlo.errors import UnsupportedError
from shardc.launcher.remote.client import connect
from shardc.launcher.remote.partitioned import RemotePartitioned
from shardc.launcher.remote.program import RemoteProgram, RemotePropagated
from shardc.launcher.stages import Partitioned, Program, Propagated
from tests.launcher.remote.remote_service import FakeService

#: What a stage here is made of, which is no business of whoever asks for it.
INSIDE = {"jax", "original", "content", "seconds", "provenance", "outcome", "write_back"}
MESH = Mesh({"data": 2, "model": 2})


def public(stage: type) -> set[str]:
    return {n for n in (*dir(stage), *(f.name for f in fields(stage))) if not n.startswith("_")}


@pytest.mark.parametrize(
    ("here", "there"), [(Program, RemoteProgram), (Propagated, RemotePropagated), (Partitioned, RemotePartitioned)]
)
def test_nothing_is_missing(here: type, there: type) -> None:
    assert public(here) - public(there) <= INSIDE


def test_what_no_order_asks_for_is_said_here_and_is_the_same(service: FakeService, mlp: str) -> None:
    with connect(service.url) as client:
        here, there = shardc.load(mlp), client.program(mlp)
        for a, b in ((here, there), (here.annotate(mesh=MESH), there.annotate(mesh=MESH))):
            assert (a.as_text(), a.for_one_device) == (b.as_text(), b.for_one_device)
            assert str(a.module) == str(b.module)
            p, q = a.propagate(conservative=True), b.propagate(conservative=True)
            assert p.as_text() == q.as_text() == str(q.module)
            assert p.provenance_dict() == q.provenance_dict()
            assert q.seconds.keys() == p.seconds.keys()
            made, asked = p.partition(), q.partition()
            assert str(made.module) == str(asked.module) == asked.as_text()
            assert str(made.compiled_module) == str(asked.compiled_module)
        with pytest.raises(UnsupportedError, match="can be written as MLIR"):
            there.as_stablehlo()
        with pytest.raises(UnsupportedError, match="can be written as MLIR"):
            there.propagate().as_stablehlo()
    assert service.made == {"PartitionOrder": 2}


def test_custom_calls_of_ones_own_are_refused(service: FakeService, mlp: str) -> None:
    calls: Any = {"mine": object()}
    with connect(service.url) as client, pytest.raises(UnsupportedError, match=r"custom calls .*mine"):
        client.program(mlp).with_custom_calls(calls)
