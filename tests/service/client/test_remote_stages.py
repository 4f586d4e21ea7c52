"""The stages at a service have what the stages here have, and say the same."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import shardc
from shardc import Mesh
from shardc.analysis.auto.auto import auto
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.text.carried import print_with_mesh
from shardc.hlo.text.printer import print_module
from shardc.service.client.client import connect
from shardc.service.client.partitioned import RemotePartitioned
from shardc.service.client.program import RemoteProgram, RemotePropagated
from shardc.stages.stages import Partitioned, Program, Propagated
from tests.service.client.remote_service import FakeService

#: What a stage here is made of, which is no business of whoever asks for it.
INSIDE = {"jax", "original", "content", "seconds", "provenance", "outcome", "strict_interface", "write_back", "facts"}
MESH = Mesh({"data": 2, "model": 2})


def public(stage: type) -> set[str]:
    return {n for n in (*dir(stage), *(f.name for f in fields(stage))) if not n.startswith("_")}


def options(stage: type, name: str) -> list[tuple[str, object]] | None:
    """What a method takes, with defaults; None for what is none, or passes on whatever it is given."""
    method = getattr(stage, name, None)
    taken = inspect.signature(method).parameters.values() if inspect.isfunction(method) else ()
    passed = any(p.kind is p.VAR_KEYWORD for p in taken)
    return None if passed or not taken else [(p.name, p.default) for p in taken]


@pytest.mark.parametrize(
    ("here", "there"), [(Program, RemoteProgram), (Propagated, RemotePropagated), (Partitioned, RemotePartitioned)]
)
def test_nothing_is_missing(here: type, there: type) -> None:
    assert public(here) - public(there) <= INSIDE
    compared = [n for n in public(here) if options(there, n) is not None]
    assert len(compared) > 4 and [n for n in compared if options(here, n) != options(there, n)] == []


def test_what_no_order_asks_for_is_said_here_and_is_the_same(service: FakeService, mlp: str) -> None:
    with connect(service.url) as client:
        here, there = shardc.load(mlp), client.program(mlp)
        for a, b in ((here, there), (here.annotate(mesh=MESH), there.annotate(mesh=MESH))):
            assert (a.as_text(), a.for_one_device) == (b.as_text(), b.for_one_device)
            assert print_module(a.module) == print_module(b.module)
            p, q = a.propagate(conservative=True), b.propagate(conservative=True)
            assert p.as_text() == q.as_text() == print_with_mesh(q.module)
            assert p.provenance_dict() == q.provenance_dict()
            assert q.seconds.keys() == p.seconds.keys()
            made, asked = p.partition(), q.partition()
            assert print_module(made.module) == print_module(asked.module) == asked.as_text()
            assert print_module(made.compiled_module) == print_module(asked.compiled_module)
        with pytest.raises(UnsupportedError, match="can be written as MLIR"):
            there.as_stablehlo()
        with pytest.raises(UnsupportedError, match="can be written as MLIR"):
            there.propagate().as_stablehlo()
    assert service.made == {"PartitionOrder": 2}


TUPLE = """HloModule pair
ENTRY main {
  p = (f32[8]{0}, f32[8]{0}) parameter(0)
  a = f32[8]{0} get-tuple-element(p), index=0
  ROOT n = f32[8]{0} negate(a)
}
"""
TILES = """HloModule tiles, num_partitions=2
ENTRY main {
  x = f32[8]{0} parameter(0), sharding={devices=[2]<=[2]}
  ROOT n = f32[8]{0} negate(x)
}
"""
ORDERED = """module {
  sdy.mesh @mesh = <["a"=2, "b"=2], device_ids=[0, 2, 1, 3]>
  func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}
"""


@pytest.mark.parametrize("text", [TUPLE, TILES, ORDERED])
def test_names_and_mesh_are_those_that_the_program_has(service: FakeService, tmp_path: Path, text: str) -> None:
    (tmp_path / "program").write_text(text)
    here = shardc.load(tmp_path / "program")
    with connect(service.url) as client:
        there = client.program(tmp_path / "program")
        assert (there.mesh, there.arg_names) == (here.mesh, here.arg_names)
        if text is not ORDERED:
            mesh = Mesh({"data": 2})
            assert there.annotate(mesh=mesh).mesh == here.annotate(mesh=mesh).mesh == mesh
    assert set(service.made) == {"InspectOrder"}


def test_annotations_are_found_there_as_here(service: FakeService, mlp: str) -> None:
    here = shardc.load(mlp).annotate(mesh=MESH)
    with connect(service.url) as client:
        there = client.auto(mlp, machine="h100-dgx", mesh=MESH, keep="x")
        assert there == json.loads(json.dumps(auto(here, machine="h100-dgx", keep="x").to_dict()))
        wider = client.auto(mlp, machine="h100-dgx", devices=8, memory=1e9)
        assert len(wider["meshes"]) > 1 and wider["memory_bytes"] == 1e9
    assert service.made == {"AutoOrder": 2}


@pytest.mark.parametrize("given", [["model", "data"], ("model", "data"), "model,data", {"data": "nvlink"}, "search"])
def test_axes_lie_where_any_form_of_a_mapping_says(service: FakeService, mlp: str, given: Any) -> None:
    here = shardc.load(mlp).annotate(mesh=MESH)
    with connect(service.url) as client:
        there = client.program(mlp).annotate(mesh=MESH)
        expected = here.simulate("h100-dgx", mapping=given).to_dict()
        assert there.simulate("h100-dgx", mapping=given).to_dict() == expected
        if given != "search":
            asked: dict[str, Any] = {"devices": 4, "machine": "h100-dgx", "mesh": MESH, "meshes": False, "refine": 0}
            result = client.sweep(mlp, mapping=given, **asked)
            local = shardc.sweep(mlp, mapping=given, jobs=1, **asked)
            assert result.ranked and result.to_dict() == local.to_dict()


@pytest.mark.parametrize("given", [3, {"data": ["x", "y"]}, [1, 2], {1: "x"}])
def test_what_is_no_mapping_is_refused_here_as_there(service: FakeService, mlp: str, given: Any) -> None:
    told = []
    with connect(service.url) as client:
        for program in (shardc.load(mlp), client.program(mlp)):
            with pytest.raises(InputError, match="a mapping is ") as raised:
                program.simulate("h100-dgx", mesh=MESH, mapping=given)
            told.append(str(raised.value))
    assert told[0] == told[1]


def test_custom_calls_of_ones_own_are_refused(service: FakeService, mlp: str) -> None:
    calls: Any = {"mine": object()}
    with connect(service.url) as client, pytest.raises(UnsupportedError, match=r"custom calls .*mine"):
        client.program(mlp).with_custom_calls(calls)
