"""What makes two ranks run the same program: all that is compiled in, whatever processor it is compiled for."""

from __future__ import annotations

import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.executable import Executable
from shardc.hlo.config import Config
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.driver.step_driver import program_hash, program_parts
from shardc.native.llvm.target import Target, host_target
from shardc.stages.stages import Program

TEXT = """HloModule scaled, num_partitions=2

ENTRY main_spmd {
  x = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}
  c = f32[] constant(2)
  b = f32[4]{0} broadcast(c), dimensions={}
  i = s32[4]{0} iota(), iota_dimension=0
  f = f32[4]{0} convert(i)
  g = f32[4]{0} add(b, f)
  ROOT y = f32[4]{0} multiply(x, g)
}
"""
CODE = "constants and operations, including values captured from outside the function"


def made(text: str, machine: Target | None = None) -> Executable:
    module = Program(read_hlo(text, "scaled")).propagate().partition().compiled_module
    return build_executable(module, Config(), machine or host_target())


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("constant(2)", "constant(3)", CODE),
        ("constant(2)", "constant(2.0000002)", CODE),
        ("multiply(x", "divide(x", CODE),
        ("f32[4]{0} add", "f32[4]{0} maximum", CODE),
        ("HloModule scaled,", "HloModule scaled, input_output_alias={ {}: (0, {}, may-alias) },", "donated arguments"),
        ("HloModule scaled", "HloModule other", "name"),
        ("f32[4]", "f32[6]", "parameters"),
    ],
)
def test_whatever_is_compiled_in_counts(old: str, new: str, part: str) -> None:
    first, second = made(TEXT), made(TEXT.replace(old, new).replace("s32[4]", "s32[6]" if "[6]" in new else "s32[4]"))
    mine, theirs = program_parts(first), program_parts(second)
    assert next(name for name in mine if mine[name] != theirs[name]) == part
    assert program_hash(first) != program_hash(second) and program_hash(first) == program_hash(made(TEXT))


def test_the_processor_does_not() -> None:
    host = host_target()
    plain = Target(host.triple, "x86-64" if host.triple.startswith("x86_64") else "generic", "")
    first, second = made(TEXT), made(TEXT, plain)
    assert first.objects != second.objects and first.meaning == second.meaning != ""
