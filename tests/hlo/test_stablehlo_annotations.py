# ruff: noqa: E501
"""What surrounds the ops: shardings, meshes, names, source locations, donation, containers."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding, TileSharding
from shardc.hlo.stablehlo.reader import module_from_mlir, read_stablehlo
from shardc.hlo.stablehlo.writer import write_stablehlo
from shardc.hlo.verify import verify

MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
OURS = Mesh({"data": 2, "model": 4})


def named(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def step(state: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ state["w"])
    hidden = jax.lax.with_sharding_constraint(hidden, named("data", ("model",)))
    return {"w": state["w"] - 0.1, "b": state["b"] * 2}, hidden.sum()


def lowered() -> Any:
    state = {"w": jax.ShapeDtypeStruct((16, 32), jnp.float32), "b": jax.ShapeDtypeStruct((32,), jnp.float32)}
    jitted = jax.jit(
        step,
        in_shardings=({"w": named(None, "model"), "b": None}, named("data")),
        out_shardings=({"w": named(None, "model"), "b": None}, None),
        donate_argnums=0,
    )
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    return jitted.trace(state, x).lower(lowering_platforms=("cpu",))


def shape_of(module: Module) -> list[str]:
    """Everything that must not change with the container."""
    lines = [f"{module.arg_names} {module.result_names} {module.aliases} {module.donors} {module.mesh}"]
    for i in module.instructions():
        attrs = {k: str(v) for k, v in i.attrs.items()}
        lines.append(f"{i!r} {attrs} {i.sharding} {i.metadata}")
    return lines


def text_of(body: str, results: str = "tensor<4xf32>", arguments: str = "%a: tensor<4xf32>") -> str:
    return (
        f'module {{\n  sdy.mesh @m = <["x"=2, "y"=2]>\n  func.func @main({arguments}) -> {results} {{\n{body}\n  }}\n}}'
    )


def ops(module: Module, opcode: str) -> list[Instruction]:
    return [i for i in module.instructions() if i.opcode == opcode]


def test_names_shardings_and_donation_are_kept() -> None:
    module = module_from_mlir(lowered().compiler_ir("stablehlo"))
    verify(module)
    assert module.arg_names == ("state['b']", "state['w']", "x")
    assert module.result_names == ("result[0]['b']", "result[0]['w']", "result[1]")
    assert module.mesh == OURS
    assert module.num_partitions == 8
    b, w, x = module.parameters
    assert b.sharding is None
    assert w.sharding == Sharding.of(OURS, None, "model")
    assert x.sharding == Sharding.of(OURS, "data", None)
    assert w.metadata is not None
    assert w.metadata.op_name == "state['w']"
    assert module.entry.root.opcode == "tuple"
    assert module.entry.root.sharding == (None, Sharding.of(OURS, None, "model"), None)
    (constraint,) = ops(module, "custom-call")
    assert constraint.attrs["custom_call_target"] == "Sharding"
    assert constraint.sharding == Sharding.of(OURS, "data", "model")
    donated = {a.parameter for a in module.aliases} | set(module.donors)
    assert donated == {0, 1}


def test_source_is_the_innermost_user_frame() -> None:
    module = module_from_mlir(lowered().compiler_ir("stablehlo"))
    (dot,) = ops(module, "dot")
    assert dot.metadata is not None
    assert dot.metadata.source_file == __file__
    line = Path(__file__).read_text().splitlines()[dot.metadata.source_line - 1]
    assert "jnp.tanh(x @ state" in line
    assert dot.metadata.op_name.startswith("jit(step)/")
    assert dot.metadata.op_name.endswith("dot_general")
    assert dot.metadata.source_column > 0


def test_text_bytecode_and_portable_artifact_are_the_same() -> None:
    stage = lowered()
    mlir = stage.compiler_ir("stablehlo")
    buffer = io.BytesIO()
    mlir.operation.write_bytecode(buffer)
    direct = shape_of(module_from_mlir(mlir))
    assert shape_of(read_stablehlo(stage.as_text(debug_info=True))) == direct
    assert shape_of(read_stablehlo(buffer.getvalue())) == direct
    artifact = export.export(jax.jit(lambda x: jnp.sin(x) @ x), platforms=["cpu"])(np.ones((3, 3), np.float32))
    module = read_stablehlo(bytes(artifact.mlir_module_serialized))
    verify(module)
    assert [i.opcode for i in module.entry] == ["parameter", "sine", "dot", "tuple"]


def test_a_file_without_locations_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "shardc"):
        module = read_stablehlo(lowered().as_text(), "step.mlir")
    assert len(caplog.records) == 1
    assert "step.mlir" in caplog.text
    assert "as_text(debug_info=True)" in caplog.text
    (dot,) = ops(module, "dot")
    assert re.fullmatch(r"step\.mlir:\d+", dot.source)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "shardc"):
        read_stablehlo(lowered().as_text(debug_info=True), "step.mlir")
    assert not caplog.records


def test_open_dimensions_priorities_and_replicated_axes() -> None:
    text = """module {
  sdy.mesh @m = <["x"=2, "y"=4]>
  func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x", ?}p2], replicated={"y":(1)2}>})
      -> tensor<4xf32> {
    return %a : tensor<4xf32>
  }
}"""
    (parameter,) = read_stablehlo(text).parameters
    mesh = Mesh({"x": 2, "y": 4})
    assert parameter.sharding == Sharding(
        mesh, (DimSharding((AxisRef("x"),), closed=False, priority=2),), (AxisRef("y", 1, 2),)
    )


def test_unreduced_sub_axes_and_maximal_meshes() -> None:
    text = """module {
  sdy.mesh @m = <["x"=8]>
  sdy.mesh @one = <[], device_ids=[5]>
  sdy.mesh @empty = <[]>
  func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x":(2)2}, {}], unreduced={"x":(1)2}>},
                  %b: tensor<f32> {sdy.sharding = #sdy.sharding<@one, []>},
                  %c: tensor<2xf32> {sdy.sharding = #sdy.sharding<@empty, [{?}]>}) -> tensor<f32> {
    return %b : tensor<f32>
  }
}"""
    a, b, c = read_stablehlo(text).parameters
    mesh = Mesh({"x": 8})
    assert a.sharding == Sharding(
        mesh, (DimSharding((AxisRef("x", 2, 2),)), DimSharding()), unreduced=(AxisRef("x", 1, 2),)
    )
    assert isinstance(b.sharding, Sharding)
    assert b.sharding.mesh.is_maximal
    assert b.sharding.mesh.device_ids == (5,)
    assert c.sharding == Sharding(Mesh(), (DimSharding((), closed=False),))


def test_gspmd_shardings() -> None:
    body = """    %0 = stablehlo.custom_call @Sharding(%a) {mhlo.sharding = "{devices=[4]<=[4]}"} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>"""
    module = read_stablehlo(text_of(body, arguments='%a: tensor<4xf32> {mhlo.sharding = "{replicated}"}'))
    assert isinstance(module.parameters[0].sharding, TileSharding)
    assert module.parameters[0].sharding.kind == "replicated"
    (call,) = ops(module, "custom-call")
    assert isinstance(call.sharding, TileSharding)
    assert call.sharding.tile == (4,)


def test_shardings_of_ops_with_several_results() -> None:
    one = '<@m, [{"x"}]>'
    body = f"""    %0:2 = "stablehlo.optimization_barrier"(%a, %a)
      {{sdy.sharding = #sdy.sharding_per_value<[{one}, <@m, [{{?}}]>]>}} : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    %1 = stablehlo.add %0#0, %0#1 {{sdy.sharding = #sdy.sharding_per_value<[{one}]>}} : tensor<4xf32>
    return %1 : tensor<4xf32>"""
    module = read_stablehlo(text_of(body))
    mesh = Mesh({"x": 2, "y": 2})
    first, second = ops(module, "get-tuple-element")
    assert first.sharding == Sharding.of(mesh, "x")
    assert second.sharding == Sharding(mesh, (DimSharding((), closed=False),))
    assert ops(module, "add")[0].sharding == Sharding.of(mesh, "x")


def test_reshard_and_named_computation_are_constraints() -> None:
    body = """    %0 = sdy.reshard %a <@m, [{"x"}]> : tensor<4xf32>
    %1 = sdy.named_computation<"f">(%0) in_shardings=[<@m, [{"y"}]>] out_shardings=[<@m, [{}]>] (%p: tensor<4xf32>) {
      %2 = stablehlo.negate %p : tensor<4xf32>
      sdy.return %2 : tensor<4xf32>
    } : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>"""
    module = read_stablehlo(text_of(body))
    found = [str(i.sharding) for i in ops(module, "custom-call")]
    assert found == ["[{x}]", "[{y}]", "[{}]"]


def test_shardings_carried_as_text_by_older_exports() -> None:
    sharding = r'xla.sdy.sharding = "#sdy.sharding<@mesh, [{\"x\"}]>"'
    value = r'xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{\"x\"}]>]>"'
    text = f"""module attributes {{mhlo.frontend_attributes = {{xla.sdy.meshes = "{{mesh = #sdy.mesh<[\\"x\\"=2]>}}"}}}} {{
  func.func @main(%a: tensor<4xf32> {{mhlo.frontend_attributes = {{{sharding}}}, mhlo.sharding = "{{replicated}}"}}) -> tensor<4xf32> {{
    %0 = stablehlo.custom_call @Sharding(%a) {{mhlo.frontend_attributes = {{{value}}}}} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%0) {{mhlo.frontend_attributes = {{{value}}}}} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }}
}}"""
    module = read_stablehlo(text)
    split = Sharding.of(Mesh({"x": 2}), "x")
    assert module.mesh == Mesh({"x": 2})
    assert module.parameters[0].sharding == split
    assert [(i.attrs["custom_call_target"], i.sharding) for i in ops(module, "custom-call")] == [
        ("Sharding", split)
    ] * 2


def test_names_are_unique_and_the_same_every_time() -> None:
    text = lowered().as_text(debug_info=True)
    first, second = read_stablehlo(text), read_stablehlo(text)
    names = [i.name for i in first.instructions()]
    assert len(set(names)) == len(names)
    assert names == [i.name for i in second.instructions()]


def test_writer_puts_shardings_on_the_original_text() -> None:
    text = lowered().as_text(debug_info=True)
    module = read_stablehlo(text, "step.mlir")
    spread = Sharding.of(OURS, "data", "model")

    def decide(old: Instruction) -> Instruction:
        return old.replace(sharding=spread) if old.opcode in ("dot", "tanh") else old

    changed: dict[Instruction, Instruction] = {}
    for i in module.entry:
        changed[i] = decide(i.replace(operands=[changed[o] for o in i.operands]))
    entry = type(module.entry)("main", changed.values(), changed[module.entry.root])
    written = write_stablehlo(text, module.with_(entry=entry, computations=(entry,)))
    again = read_stablehlo(written, "step.mlir")
    verify(again)
    assert ops(again, "dot")[0].sharding == spread
    assert ops(again, "tanh")[0].sharding == spread
    assert ops(again, "dot")[0].metadata == ops(module, "dot")[0].metadata
    assert again.parameters[1].sharding == module.parameters[1].sharding
    assert again.aliases == module.aliases
    unmarked = [repr(i) for i in again.instructions()]
    assert unmarked == [repr(i) for i in module.instructions()]


def test_writer_adds_or_replaces_a_mesh() -> None:
    plain = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n  return %a : tensor<4xf32>\n}"
    module = read_stablehlo(plain)
    mesh = Mesh({"x": 4}, device_ids=(3, 2, 1, 0))
    parameter = module.parameters[0].replace(sharding=Sharding.of(mesh, "x"))
    root = module.entry.root.replace(operands=(parameter,), sharding=(Sharding.of(mesh, "x"),))
    entry = type(module.entry)("main", (parameter, root), root)
    written = write_stablehlo(plain, module.with_(entry=entry, computations=(entry,), mesh=mesh))
    again = read_stablehlo(written)
    assert again.mesh == mesh
    assert again.parameters[0].sharding == Sharding.of(mesh, "x")
    assert again.entry.root.sharding == (Sharding.of(mesh, "x"),)
