"""``shardc opt``: passes alone, from files and standard input, and what it says of passes that there are not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from shardc.cli.app import main
from shardc.compiler.lower.fuse.fuse_products import FuseProducts
from shardc.compiler.lower.schedule.convert_async import ConvertAsync
from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.costs.machines.machine import load_machine
from shardc.partitioner.optimise.combine_collectives import CombineCollectives
from shardc.passes.opt import read_passes
from shardc.passes.options import options_of
from shardc.passes.parse import Asked, parse_passes
from shardc.passes.pipelines import PIPELINES
from shardc.passes.table import PASSES

PROGRAM = """HloModule m
ENTRY main {
  x = f32[8,4] parameter(0)
  t = f32[4,8] transpose(x), dimensions={1,0}
  u = f32[8,4] transpose(t), dimensions={1,0}
  s = f32[8,4] sine(u)
  ROOT n = f32[8,4] negate(s)
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.hlo"
    path.write_text(PROGRAM)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["opt", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_passes_run_in_order(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, program, "--passes=simplify,eliminate-dead")
    assert "transpose" not in text
    assert "sine(%x)" in text
    out = tmp_path / "out.hlo"
    assert run(capsys, program, "--passes", "simplify, eliminate-dead", "-o", str(out)) == ""
    assert out.read_text() == text
    told = json.loads(run(capsys, program, "--passes=simplify,eliminate-dead", "--json"))
    assert told == {"passes": ["simplify", "eliminate-dead"], "text": text}
    assert "fusion" in run(capsys, program, "--passes=simplify,eliminate-dead,fuse{limit=8}")
    assert "fusion" not in run(capsys, program, "--passes=simplify,eliminate-dead,fuse{limit=1}")
    assert main(["opt", program, "--passes=simplify,eliminate-dead", "-v"]) == 0
    captured = capsys.readouterr()
    assert captured.out == text
    assert [line.partition(":")[0] for line in captured.err.splitlines()] == ["simplify", "eliminate-dead"]


def test_a_program_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PROGRAM.encode())))
    assert "transpose" not in run(capsys, "-", "--passes=simplify")


def test_what_one_command_writes_the_next_one_reads(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Step by step, each through a file, it is the same program as in one go."""
    steps = ["propagate", "prepare-pipeline", "partition", "optimise-pipeline", "lower-pipeline"]
    mesh = ["--mesh=data=2,model=2", "--annotate=x=data,None"]
    whole = run(capsys, program, *mesh, "--passes", ",".join(steps))
    path = tmp_path / "step.hlo"
    path.write_text(run(capsys, program, *mesh, "--passes", steps[0]))
    for step in steps[1:]:
        path.write_text(run(capsys, str(path), "--passes", step))
    assert path.read_text() == whole
    assert "f32[4,4]" in whole
    assert "fusion" in whole


def test_a_partitioned_program_can_be_run(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "partitioned.hlo"
    run(capsys, program, "--mesh=data=2", "--annotate=x=data", "--passes=propagate,partition-pipeline", "-o", str(out))
    assert main(["run", str(out), "--json"]) == 0
    partitioned = json.loads(capsys.readouterr().out)
    assert main(["run", program, "--json"]) == 0
    assert partitioned["results"] == json.loads(capsys.readouterr().out)["results"]


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(run(capsys, "--list-passes", "--json"))
    assert [p["name"] for p in told["passes"]] == list(PASSES)
    assert [p["name"] for p in told["pipelines"]] == list(PIPELINES)
    text = run(capsys, "--list-passes")
    for one in (*told["passes"], *told["pipelines"]):
        assert one["name"] in text
        assert one["why"] in text
        for option in one["options"]:
            assert f"{option['name']}: {option['type']} = {option['default']}" in text
    for pipeline in told["pipelines"]:
        assert set(pipeline["passes"]) <= set(PASSES)
        assert ", ".join(pipeline["passes"]) in text


@pytest.mark.parametrize("name", [*PASSES, *PIPELINES])
def test_defaults_are_written_as_options_are_read(name: str) -> None:
    one = PASSES.get(name) or PIPELINES[name]
    given = ",".join(f"{o.name}={o.default}" for o in options_of(type(one)))
    assert read_passes(f"{name}{{{given}}}") == (one,)


def test_values_of_all_types() -> None:
    overlap = Overlap(load_machine("h100-dgx"), 2, everything=True)
    text = "{machine=h100-dgx,transfers=2,everything=true}"
    assert read_passes(f"convert-async{{overlap={text}}}") == (ConvertAsync(overlap),)
    assert read_passes("combine-collectives{opcodes=a+b}") == (CombineCollectives(opcodes=("a", "b")),)
    assert read_passes("fuse-products{leaders=a+b,eager=true}") == (FuseProducts(leaders=frozenset("ab"), eager=True),)


WRONG = {
    "": "--passes is empty",
    "fuze": "did you mean fuse",
    "fuse{limt=3}": "did you mean limit?",
    "fuse{limit=x}": "option limit takes an integer, not 'x'",
    "fuse{limit={x=1}}": "option limit takes an integer",
    "order-for-memory{on=1}": "order-for-memory has no option 'on'",
    "inline-calls{on=1}": "inline-calls has no options",
    "remove-markers{barriers=yes}": "true or false, not 'yes'",
    "hoist-collectives{growth=nan}": "option growth takes a number, not 'nan'",
    "propagate{options={strategy=some}}": "PropagationOptions, option strategy takes",
    "window-einsums{choice=some}": "never or auto or always, not 'some'",
    "window-einsums{machine=nope}": "no machine 'nope'",
    "convert-async{overlap=h100-dgx}": "not 'h100-dgx'",
    "convert-async{overlap={transfers=1}}": "needs a value for machine",
    "lower-gpu-pipeline{arch=sm_12}": "unknown architecture 'sm_12'",
    "fuse,,schedule": "column 6",
    "fuse{limit}": "option 'limit' has no value",
    "fuse{limit=1": "a closing brace is missing",
    "fuse{limit=1,limit=2}": "given twice",
    "fuse schedule": "unexpected 's'",
    "partition": "the module has no mesh",
}


@pytest.mark.parametrize("passes", WRONG)
def test_what_is_wrong_is_told(passes: str, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", program, f"--passes={passes}"]) == 2
    captured = capsys.readouterr()
    assert WRONG[passes] in captured.err
    assert "Traceback" not in captured.err
    assert not captured.out


def test_a_program_without_shardings_is_refused_by_name(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", program, "--mesh=x=2", "--passes=nest-sub-axes"]) == 2
    assert "%x has no sharding over the axes of a mesh" in capsys.readouterr().err


def test_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", "--passes=fuse"]) == 2
    assert "FILE is missing" in capsys.readouterr().err


def test_meshes_that_do_not_fit_a_partitioned_program(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "partitioned.hlo"
    run(capsys, program, "--mesh=x=2", "--passes=propagate,partition", "-o", str(out))
    assert main(["opt", str(out), "--mesh=x=4", "--passes=tidy"]) == 2
    assert "a mesh of 4 devices for a program that is partitioned for 2" in capsys.readouterr().err
    assert main(["opt", str(out), "--annotate=x=x", "--passes=tidy"]) == 2
    assert "already partitioned" in capsys.readouterr().err


def test_text_of_passes_is_a_list_of_names_and_options() -> None:
    wanted = (Asked("a", {"x": "1", "y": {"z": "2"}}), Asked("b", {}))
    assert parse_passes(" a{ x = 1 , y={z=2} } , b ") == wanted
