"""Orders carried out: the files are what the local stages give, and what an order must not reach it does not reach."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardc.analysis.auto.auto import auto
from shardc.analysis.explain.difference import difference
from shardc.analysis.explain.explanation import Difference, Explanation
from shardc.analysis.simulate.simulate_program import simulate_program
from shardc.analysis.simulate.simulation import Simulation
from shardc.analysis.simulate.trace import write_trace
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.run import sweep
from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.frontends.load import load_program
from shardc.hlo.codec.plain import from_json
from shardc.hlo.config import Config
from shardc.hlo.errors import AnnotationError, InputError, ParseError, RunError, ShardcError, UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.native.llvm.target import named_target
from shardc.service.orders import (
    AutoOrder,
    CompileOrder,
    Cpu,
    ExplainOrder,
    InspectOrder,
    Order,
    PartitionOrder,
    ReportOrder,
    Settings,
    SimulateOrder,
    SweepOrder,
    SweepSet,
    to_json,
)
from shardc.service.results import AheadFacts, ProgramFacts, StagesFacts
from shardc.service.workers.carry_out import carry_out, carry_out_task
from shardc.service.workers.package import ORDER_FILE, pack, program_file, unpack
from shardc.stages.stages import Partitioned, Program, as_stage

_TEXT = """HloModule layer

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,32]{1,0} parameter(0)
  w1 = f32[32,128]{1,0} parameter(1)
  w2 = f32[128,32]{1,0} parameter(2)
  h = f32[64,128]{1,0} dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,128]{1,0} tanh(h)
  o = f32[64,32]{1,0} dot(t, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  loss = f32[] reduce(o, zero), dimensions={0,1}, to_apply=sum
  ROOT out = (f32[], f32[64,32]{1,0}) tuple(loss, o)
}
"""
_DATA = _TEXT.encode()
_PROGRAM = hashlib.sha256(_DATA).hexdigest()
_MESH = {"data": 2, "model": 2}
_SPECS = {"x": "data", "w1": "None,model", "w2": "model"}
_COMMON: dict[str, Any] = {"program": _PROGRAM, "name": "layer.hlo", "mesh": _MESH, "annotations": _SPECS}


def _made(order: Order, data: bytes = _DATA) -> tuple[dict[str, bytes], dict[str, Any]]:
    """What the task makes of an order, as a child would be asked."""
    task = {ORDER_FILE: to_json(order).encode(), program_file(hashlib.sha256(data).hexdigest()): data}
    return unpack(carry_out_task(pack(task, {}), lambda news: None))


def _program(specs: Mapping[str, str] = _SPECS, mesh: Mapping[str, int] = _MESH) -> Program:
    program = replace(as_stage(load_program(_DATA, "layer.hlo")), config=Config())
    return program.annotate(dict(specs), mesh=Mesh(dict(mesh)))


def _without_seconds(text: bytes) -> dict[str, Any]:
    return {k: v for k, v in json.loads(text).items() if k != "seconds"}


def _same_partition(files: Mapping[str, bytes], local: Partitioned) -> None:
    assert files["partitioned.hlo"].decode() == local.as_text()
    expected = json.dumps(local.report()).encode()
    assert json.loads(files["report.json"]) == {**_without_seconds(expected), "seconds": {}}


def test_partition_gives_what_the_local_stages_give() -> None:
    files, facts = _made(PartitionOrder(**_COMMON))
    local = _program().partition()
    assert sorted(files) == ["partitioned.hlo", "report.json", "stages.json"]
    _same_partition(files, local)
    stages = from_json(StagesFacts, files["stages.json"])
    assert (stages.name, stages.devices, stages.mesh) == ("layer", 4, _MESH)
    assert stages.arg_names == local.program.arg_names
    assert dict(stages.options) == dict(local.options)
    assert (facts["kind"], facts["name"], facts["warnings"]) == ("partition", "layer.hlo", ())
    assert set(facts["seconds"]) == {"read", "propagate", "partition", "report"}


def test_options_of_partitioning_count() -> None:
    order = PartitionOrder(
        **_COMMON, machine="h100-dgx", windowed_einsum="always", decomposed_rings=True, conservative=True
    )
    files, _ = _made(order)
    propagated = _program().propagate(conservative=True)
    local = propagated.partition(machine="h100-dgx", windowed_einsum="always", decomposed_rings=True)
    _same_partition(files, local)
    assert dict(from_json(StagesFacts, files["stages.json"]).options) == dict(local.options)


@pytest.mark.parametrize("machine", ["", "h100-dgx"])
def test_plans_are_made_and_judged_as_here(machine: str) -> None:
    specs = {"x": "data", "w1": "model", "w2": "None,data"}
    terms = {**_COMMON, "annotations": specs, "machine": machine}
    files, _ = _made(PartitionOrder(**terms, plan="global", memory=1e9))
    local = _program(specs).partition(machine=machine or None, plan="global", memory=1e9)
    assert local.plan is not None and local.plan.taken
    _same_partition(files, local)
    assert files["partitioned.hlo"] != _made(PartitionOrder(**terms, plan="propagated"))[0]["partitioned.hlo"]
    assert dict(from_json(StagesFacts, files["stages.json"]).options) == dict(local.options)


def test_an_executable_has_the_bytes_of_a_local_one(tmp_path: Path) -> None:
    config = Config(cache_dir=tmp_path, overlap="never")
    files, _ = _made(CompileOrder(**_COMMON, settings=Settings(overlap="never")))
    local = replace(_program(), config=config).partition()
    executable = local.compile().executable
    assert files["executable.shardc"] == to_bytes(replace(executable, seconds={}))
    assert read_bytes(files["executable.shardc"]).symbol == executable.symbol
    _same_partition(files, local)
    page = tmp_path / "report.html"
    local.write_report(page)
    assert files["report.html"] == page.read_bytes()


def test_code_is_made_for_the_processor_that_the_order_names() -> None:
    target = named_target("x86-64-v2", "linux")
    cpu = Cpu(triple=target.triple, cpu=target.cpu, features=target.features)
    files, _ = _made(CompileOrder(**_COMMON, cpu=cpu, page=False))
    assert read_bytes(files["executable.shardc"]).features == target.features
    assert "report.html" not in files
    bad = replace(cpu, triple="nvptx64-nvidia-cuda")
    with pytest.raises(InputError, match="generates no code for processors 'nvptx64'"):
        _made(CompileOrder(**_COMMON, cpu=bad))
    for bad in (replace(cpu, cpu="i386"), replace(cpu, cpu="help"), replace(cpu, features="-64bit")):
        with pytest.raises(InputError, match="does not run 64-bit code"):
            _made(CompileOrder(**_COMMON, cpu=bad))


def test_code_ahead_of_time_is_that_of_the_local_command() -> None:
    target = named_target("aarch64", "linux")
    cpu = Cpu(triple=target.triple, cpu=target.cpu, features=target.features)
    files, _ = _made(CompileOrder(**_COMMON, cpu=cpu, ahead=True, symbol="my_step", page=False))
    from shardc.analysis.ahead import compile_ahead

    local = compile_ahead(_program().partition(), name="my_step", cpu="aarch64", system="linux")
    assert from_json(AheadFacts, files["ahead.json"]) == AheadFacts("my_step", cpu)
    assert files["executable.shardc"] == to_bytes(replace(local.executable, seconds={}))


def test_code_for_a_gpu_needs_none() -> None:
    files, _ = _made(CompileOrder(**_COMMON, target="cuda-emulated", page=False))
    assert read_bytes(files["executable.shardc"]).gpu is not None
    with pytest.raises(UnsupportedError, match="unknown compile target 'cuda:sm_1'"):
        _made(CompileOrder(**_COMMON, target="cuda:sm_1"))


def test_a_simulation_is_the_local_one(tmp_path: Path) -> None:
    order = SimulateOrder(**_COMMON, machine="h100-dgx:4")
    files, _ = _made(order)
    partitioned = _program().partition(machine="h100-dgx:4")
    local = partitioned.simulate("h100-dgx:4")
    assert from_json(Simulation, files["simulation.json"]) == local
    write_trace(local, tmp_path / "trace.json")
    assert files["trace.json"] == (tmp_path / "trace.json").read_bytes()
    partitioned.write_report(tmp_path / "report.html", machine="h100-dgx:4")
    assert files["report.html"] == (tmp_path / "report.html").read_bytes()
    _same_partition(files, partitioned)
    files, _ = _made(replace(order, partitioned_for="bytes", page=False))
    assert from_json(Simulation, files["simulation.json"]) == _program().partition().simulate("h100-dgx:4")


def test_a_report_with_and_without_a_machine_is_the_local_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    for machine in ("", "tpu-v5p"):
        files, _ = _made(ReportOrder(**_COMMON, machine=machine))
        _program().partition(machine=machine or None).write_report(path, machine=machine or None)
        assert files["report.html"] == path.read_bytes()
        assert ("simulation.json" in files) == bool(machine)


def test_a_described_machine_counts_and_its_file_is_nobody_s_business(tmp_path: Path) -> None:
    from shardc.costs.machines import machine as machines

    text = (Path(machines.__file__).parent / "h100-dgx.toml").read_text(encoding="utf-8")
    text = text.replace("450e9", "225e9")
    path = tmp_path / "slow.toml"
    path.write_text(text, encoding="utf-8")
    order = SimulateOrder(**_COMMON, machine="slow:4", machine_text=text)
    files, _ = _made(order)
    local = _program().partition(machine=f"{path}:4").simulate(f"{path}:4")
    assert from_json(Simulation, files["simulation.json"]) == local
    assert b"shardc-order-" not in b"".join(files.values())
    assert json.loads(files["stages.json"])["options"]["machine"] == "slow:4"
    with pytest.raises(InputError, match="cannot be read") as told:
        _made(replace(order, machine_text="= nonsense"))
    assert told.value.where == "slow.toml"


def test_measured_times_of_other_programs_are_told_about(tmp_path: Path) -> None:
    measured = json.dumps({"format": 1, "programs": {"k": {"name": "another", "seconds": {}}}})
    _, facts = _made(SimulateOrder(**_COMMON, machine="h100-dgx", measured=measured))
    (warning,) = facts["warnings"]
    assert warning.startswith("measured.json has no times of this program (it has those of: another)")
    with pytest.raises(InputError, match="not a file of measured times") as told:
        _made(SimulateOrder(**_COMMON, machine="h100-dgx", measured="[]"))
    assert told.value.where == "measured.json"


def test_explanations_are_the_local_ones() -> None:
    order = ExplainOrder(**_COMMON, machine="h100-dgx", remedies=1, tries=2, thresholds={"memory": 0.5})
    files, _ = _made(order)
    local = _program().partition(machine="h100-dgx")
    told = local.explanation("h100-dgx", remedies=1, tries=2, thresholds={"memory": 0.5})
    assert from_json(Explanation, files["explanation.json"]) == told
    _same_partition(files, local)
    files, _ = _made(ExplainOrder(**_COMMON, values=("h", "o")))
    propagated = _program().propagate()
    assert json.loads(files["stories.json"]) == {name: propagated.explain(name) for name in ("h", "o")}
    files, _ = _made(ExplainOrder(**_COMMON, other_annotations={"x": "data+model"}))
    other = _program({"x": "data+model"}).partition()
    assert from_json(Difference, files["difference.json"]) == difference(_program().partition(), other)


def test_found_annotations_are_the_local_ones() -> None:
    data = _TEXT.replace("64,", "16384,").replace(",128", ",8192").replace("128,", "8192,").encode()
    common = {**_COMMON, "program": hashlib.sha256(data).hexdigest(), "annotations": {}}
    files, facts = _made(AutoOrder(**common, machine="h100-dgx", memory=2e9), data)
    program = replace(as_stage(load_program(data, "layer.hlo")), config=Config()).annotate(mesh=Mesh(_MESH))
    local = auto(program, machine="h100-dgx", memory=2e9)
    assert local.annotations and json.loads(files["plan.json"]) == json.loads(json.dumps(local.to_dict()))
    assert files["plan.py"].decode() == local.as_jax() and files["plan.toml"].decode() == local.as_toml()
    assert files["partitioned.hlo"].decode() == local.partitioned.as_text()
    assert "find annotations" in facts["seconds"]
    everywhere, _ = _made(AutoOrder(**common, machine="h100-dgx", devices=8), data)
    assert len(json.loads(everywhere["plan.json"])["meshes"]) == 4


@pytest.mark.parametrize(
    ("fields", "where"),
    [({"machine": ""}, "order.machine"), ({"conservative": True}, "order.conservative")],
)
def test_annotations_are_found_on_a_machine_for_the_usual_partitioning(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as told:
        _made(AutoOrder(**{**_COMMON, "machine": "h100-dgx", **fields}))
    assert told.value.where == where


def test_a_sweep_is_the_local_one() -> None:
    order = SweepOrder(
        **{**_COMMON, "mesh": {"data": 1, "model": 1}, "annotations": {"w2": "model"}},
        machine="h100-dgx",
        devices=(2, 4),
        axes={"model": "1..2"},
        sets=(SweepSet(name="rows", annotations={"x": "data"}), SweepSet(name="all", annotations={"w1": "None,model"})),
        refine=1,
    )
    news: list[Mapping[str, Any]] = []
    files, _ = carry_out(order, {_PROGRAM: _DATA}, news.append)
    sets = {"rows": {"x": "data", "w2": "model"}, "all": {"w1": "None,model", "w2": "model"}}
    local = sweep(
        replace(as_stage(load_program(_DATA, "layer.hlo")), config=Config()),
        devices=[2, 4],
        machine="h100-dgx",
        mesh=Mesh({"data": 1, "model": 1}),
        sets=sets,
        axes={"model": "1..2"},
        refine=1,
        jobs=1,
    )
    found = from_json(SweepResult, files["sweep.json"])
    assert found == local
    assert str(found) == str(local)
    assert found.best.mesh == local.best.mesh
    counts = [n["done"] for n in news if "done" in n]
    assert counts == sorted(counts)
    assert counts


def test_weak_scaling_takes_its_programs_in_order() -> None:
    data = _TEXT.replace("64,", "128,").encode()
    other = hashlib.sha256(data).hexdigest()
    order = SweepOrder(
        **{**_COMMON, "annotations": {"x": "data"}, "mesh": {"data": 1}},
        machine="h100-dgx",
        devices=(2, 4),
        programs=(_PROGRAM, other),
        refine=0,
    )
    files, _ = carry_out(order, {_PROGRAM: _DATA, other: data}, lambda news: None)
    found = from_json(SweepResult, files["sweep.json"])
    assert found.weak
    assert [o.devices for o in found.outcomes] == [2, 4]
    with pytest.raises(InputError, match="not the first"):
        carry_out(replace(order, programs=(other, _PROGRAM)), {_PROGRAM: _DATA, other: data}, lambda news: None)


def test_a_program_is_inspected_for_people_who_annotate_it() -> None:
    files, _ = _made(InspectOrder(**_COMMON))
    facts = from_json(ProgramFacts, files["program.json"])
    assert (facts.name, facts.kind, facts.devices, dict(facts.mesh)) == ("layer", "hlo", 4, _MESH)
    assert [(v.name, v.shape, v.spec) for v in facts.parameters] == [
        ("x", (64, 32), "data,None"),
        ("w1", (32, 128), "None,model"),
        ("w2", (128, 32), "model,None"),
    ]
    assert [v.shape for v in facts.results] == [(), (64, 32)]
    assert [v.name for v in facts.values] == ["h", "t", "o", "zero", "loss"]
    assert facts.left_out == 0
    for value in (*facts.parameters, *facts.results, *facts.values):
        _program({value.name: "?"} if value.shape else {})  # annotations take all of the names
    files, _ = _made(InspectOrder(program=_PROGRAM))
    assert from_json(ProgramFacts, files["program.json"]).mesh == {}


@pytest.mark.parametrize(
    "order",
    [
        CompileOrder(**_COMMON),
        CompileOrder(**_COMMON, profile=True),
        SimulateOrder(**_COMMON, machine="h100-dgx"),
        InspectOrder(**_COMMON),
        ReportOrder(**_COMMON, machine="h100-dgx", remedies=0),
        ExplainOrder(**_COMMON, remedies=0),
        ExplainOrder(**_COMMON, remedies=0, other_annotations={"x": "data,None"}),
        SweepOrder(**_COMMON, machine="h100-dgx:4"),
    ],
    ids=lambda order: order.kind,
)
def test_equal_orders_make_equal_files(order: Order) -> None:
    """Whatever was measured on the way is among the facts."""
    (first, facts), (second, others) = (_made(order) for _ in range(2))
    assert first == second
    assert facts["seconds"].keys() == others["seconds"].keys() and facts["seconds"] != others["seconds"]


def test_mlir_is_read_as_the_local_stages_read_it() -> None:
    pytest.importorskip("jaxlib")
    text = """module @m {
  func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<4x2xf32>) -> tensor<8x2xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    return %0 : tensor<8x2xf32>
  }
}
"""
    data = text.encode()
    common: dict[str, Any] = {"mesh": {"data": 2}, "annotations": {"arg0": "data"}, "name": "m.mlir"}
    order = PartitionOrder(program=hashlib.sha256(data).hexdigest(), **common)
    files, _ = _made(order, data)
    local = as_stage(load_program(data, "m.mlir")).annotate({"arg0": "data"}, mesh=Mesh({"data": 2})).partition()
    _same_partition(files, local)
    broken = text.replace("return %0", "return %7").encode()
    with pytest.raises(ParseError) as told:
        _made(replace(order, program=hashlib.sha256(broken).hexdigest()), broken)
    assert str(told.value.where).startswith("m.mlir:5")


def test_a_program_that_xla_scheduled_is_simulated_as_it_is() -> None:
    text = _TEXT.replace("HloModule layer", "HloModule layer, is_scheduled=true")
    data = text.encode()
    common: dict[str, Any] = {"program": hashlib.sha256(data).hexdigest(), "name": "layer.hlo", "machine": "h100-dgx"}
    files, _ = _made(SimulateOrder(**common), data)
    local = simulate_program(replace(load_program(data, "layer.hlo"), config=Config()), "h100-dgx")
    assert from_json(Simulation, files["simulation.json"]) == local
    for vain in ({"annotations": _SPECS, "mesh": _MESH}, {"plan": "global"}, {"windowed_einsum": "always"}):
        with pytest.raises(InputError, match=f"{next(iter(vain))} would have no effect"):
            _made(SimulateOrder(**common, **vain), data)


@pytest.mark.parametrize(
    ("order", "kind", "what"),
    [
        (SimulateOrder(**_COMMON), InputError, "no machine"),
        (SimulateOrder(**_COMMON, machine="this"), InputError, "no machine 'this'"),
        (SimulateOrder(**_COMMON, machine="layer.toml"), InputError, "no machine 'layer.toml'"),
        (SimulateOrder(**_COMMON, machine="h100-dgx:0"), InputError, "has no devices"),
        (SimulateOrder(**_COMMON, machine="h100-dgx", mapping="data=nowhere"), InputError, "nowhere"),
        (ReportOrder(**_COMMON, mapping="data=nvlink"), InputError, "no machine is named"),
        (PartitionOrder(**{**_COMMON, "annotations": {"q": "data"}}), AnnotationError, "is named 'q'"),
        (PartitionOrder(**{**_COMMON, "mesh": {}}), AnnotationError, "need a mesh"),
        (PartitionOrder(**{**_COMMON, "mesh": {"a": 2**24, "b": 2**24}}), InputError, "devices"),
        (ExplainOrder(**_COMMON, thresholds={"q": 0.1}), InputError, "threshold"),
        (SweepOrder(program=_PROGRAM, machine="h100-dgx"), InputError, "the number of devices is missing"),
    ],
)
def test_errors_are_those_of_the_local_stages(order: Order, kind: type[ShardcError], what: str) -> None:
    with pytest.raises(kind) as told:
        _made(order)
    assert what in told.value.what


def test_a_broken_program_is_told_by_the_name_that_the_order_gives() -> None:
    data = b"HloModule m\nENTRY e {\n  x = f33[] parameter(0)\n}\n"
    order = PartitionOrder(program=hashlib.sha256(data).hexdigest(), name="sub/model.hlo")
    with pytest.raises(ParseError) as told:
        _made(order, data)
    assert str(told.value.where).startswith("sub/model.hlo:3")


def test_programs_must_be_what_their_names_say() -> None:
    order = PartitionOrder(**_COMMON)
    for programs in ({}, {_PROGRAM: _DATA + b" "}):
        with pytest.raises(RunError, match="is missing from the order"):
            carry_out(order, programs, lambda news: None)
    with pytest.raises(InputError, match="JSON"):
        carry_out_task(pack({}, {}), lambda news: None)


def test_functions_of_users_are_refused_with_the_reason() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} custom-call(x), custom_call_target="their_function"
}
"""
    data = text.encode()
    order = CompileOrder(program=hashlib.sha256(data).hexdigest(), page=False)
    with pytest.raises(UnsupportedError, match="unknown custom call 'their_function'"):
        _made(order, data)


def test_neither_files_nor_settings_of_the_server_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = _made(SimulateOrder(**_COMMON, machine="h100-dgx", page=False))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h100-dgx").write_text("not a machine")
    (tmp_path / "this").write_text("not a machine")
    for name, value in {"OVERLAP": "never", "MACHINE": "tpu-v3", "TUNE": "5", "TF32": "1", "CHECK": "1"}.items():
        monkeypatch.setenv(f"SHARDC_{name}", value)
    found, _ = _made(SimulateOrder(**_COMMON, machine="h100-dgx", page=False))
    assert found["simulation.json"] == expected["simulation.json"]
    assert found["partitioned.hlo"] == expected["partitioned.hlo"]
    with pytest.raises(InputError, match="no machine 'this'"):
        _made(SimulateOrder(**_COMMON, machine="this"))
