"""Compiling what jaxlib passes: shardings at the border, partial values, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from jaxlib.mlir.dialects import stablehlo

from shardc.frontends.pjrt.compile import CompiledProgram, compile_jaxlib_program
from shardc.frontends.pjrt.compile_options import CompileOptions
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.stablehlo.mlir.bindings import Bindings

DOT = """module @m {{
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%a: tensor<8x6xf32> {argument}) -> (tensor<8x8xf32> {result}) {{
    %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }}
}}"""  # noqa: E501


def compiled(text: str, **options: Any) -> CompiledProgram:
    """The program in ``text``, passed as jaxlib passes it."""
    bindings = Bindings()
    with bindings.context() as context:
        module = bindings.ir.Module.parse(text, context)
        code = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)
    return compile_jaxlib_program(code, CompileOptions(**options), Config())


def dot(argument: str = "", result: str = "", **options: Any) -> CompiledProgram:
    said = [f"{{sdy.sharding = #sdy.sharding<@mesh, {s}>}}" if s else "" for s in (argument, result)]
    return compiled(DOT.format(argument=said[0], result=said[1]), num_partitions=4, **options)


def shardings(program: CompiledProgram) -> tuple[str, str]:
    executable = program.executable
    return str(executable.arguments[0].sharding), str(executable.results[0].sharding)


def test_what_is_not_free_is_as_written() -> None:
    assert shardings(dot('[{"x"}, {}]')) == ("[{x}, {}]", "[{}, {}]")
    assert shardings(dot('[{"x"}, {}]', '[{}, {"y"}]')) == ("[{x}, {}]", "[{}, {y}]")


def test_what_is_free_follows() -> None:
    assert shardings(dot('[{"x"}, {}]', free_results=(True,)))[1].startswith("[{x}")
    assert shardings(dot("", '[{"x"}, {}]', free_arguments=(True,)))[0] == "[{x}, {}]"


def test_free_results_are_even() -> None:
    """A dimension of 6 is not split over 4 devices, only over 2."""
    text = DOT.replace("8x8", "6x6").replace("[1] x [1]", "[0] x [0]")
    text = text.format(argument='{sdy.sharding = #sdy.sharding<@mesh, [{}, {"x", "y"}]>}', result="")
    found = compiled(text, num_partitions=4, free_results=(True,)).executable.results[0].sharding
    assert isinstance(found, Sharding)
    assert all(6 % n == 0 for n in found.num_shards())


def test_unreduced_results_and_arguments_are_partial() -> None:
    assert dot('[{}, {"y"}]', '[{}, {}], unreduced={"y"}').executable.collectives == ()
    argument = dot('[{}, {}], unreduced={"y"}', "[{}, {}]").executable
    assert [c.op for c in argument.collectives] == ["all-reduce"]
    assert str(argument.arguments[0].sharding) == "[{}, {}] unreduced={y}"


def test_shardings_over_one_device_split_nothing() -> None:
    """As in a program that was exported for one device, and is called on four."""
    text = DOT.replace("sdy.mesh @mesh =", 'sdy.mesh @one = <["i"=1]>\n  sdy.mesh @mesh =')
    text = text.replace(
        "return %0", '%1 = sdy.sharding_constraint %0 <@one, [{{"i"}}, {{}}]> : tensor<8x8xf32>\n    return %1'
    )
    program = text.format(argument='{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}', result="")
    assert shardings(compiled(program, num_partitions=4, free_results=(True,))) == ("[{x}, {}]", "[{}, {}]")


def test_tokens_memories_and_layouts_are_told() -> None:
    program = compiled("""module @m {
      func.func public @main(%t: !stablehlo.token {jax.token = true}, %a: tensor<2x3xf32> {mhlo.layout_mode = "{1,0}"})
          -> (!stablehlo.token {jax.token = true}, tensor<2x3xf32> {mhlo.memory_kind = "pinned_host"}) {
        return %t, %a : !stablehlo.token, tensor<2x3xf32>
      }
    }""")
    border = program.border
    assert border.arguments is not None
    assert border.results is not None
    assert [a.is_token for a in border.arguments] == [a.is_token for a in border.results] == [True, False]
    assert border.results[1].memory_kind == "pinned_host"
    assert len(program.executable.arguments) == len(program.executable.results) == 1


def test_other_layouts_are_refused() -> None:
    text = DOT.format(argument='{mhlo.layout_mode = "{0,1}", jax.arg_info = "x"}', result="")
    with pytest.raises(UnsupportedError, match=r"layout \{0,1\}") as error:
        compiled(text, num_partitions=4)
    assert "row by row" in str(error.value)


def test_what_is_not_known_names_its_line() -> None:
    text = """module @m {
      func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.custom_call @nobody_knows(%a) : (tensor<3xf32>) -> tensor<3xf32> loc("train.py":17:0)
        return %0 : tensor<3xf32>
      }
    }"""
    with pytest.raises(UnsupportedError, match="nobody_knows") as error:
        compiled(text)
    assert "train.py:17" in str(error.value)
