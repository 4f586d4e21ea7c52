"""``shardc simulate``: tables, data, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shardc
from shardc.cli.app import main
from tests.analysis.simulate.simulated_programs import LOOP
from tests.cli.programs import MLP, PLAIN


@pytest.fixture
def mlp(tmp_path: Path) -> str:
    path = tmp_path / "mlp.hlo"
    path.write_text(MLP)
    return str(path)


def test_a_table_says_what_the_step_goes_to(mlp: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", mlp, "--machine", "h100-dgx"]) == 0
    text = capsys.readouterr().out
    lines = {line[:24].strip(): line[24:].strip() for line in text.splitlines()}
    assert lines["machine"].startswith("h100-dgx:4, 4 devices: axis_0=2 (nvlink (2 of 4)), axis_1=2")
    for part in ("compute", "exposed communication", "idle", "overlapped communication"):
        assert lines[part].endswith("%")
    assert "MFU" in lines["utilisation"]
    assert "of 74.5 GiB" in lines["peak memory"]
    assert "bytes over nvlink" in text
    assert "all-reduce" in text
    assert "critical path" in text
    assert "m.py:8" in text


@pytest.fixture
def loop(tmp_path: Path) -> list[str]:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP.replace("TRIPS", "10"))
    return [str(path), "--annotate", "x=data,model", "--annotate", "w=model,None"]


def test_any_mesh_on_any_links_as_data(loop: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", *loop, "--mesh", "data=8,model=8", "--machine", "tpu-v5p:4x4x4", "--json"]
    assert main([*arguments, "--map", "model=x+y,data=z+x"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["devices"] == 64
    assert facts["mesh"] == {"data": 8, "model": 8}
    assert facts["mapping"]["model"].startswith("torus x")
    parts = [facts[f"{part}_seconds"] for part in ("compute", "exposed", "idle")]
    assert sum(parts) == pytest.approx(facts["step_seconds"])
    assert main(["simulate", *loop, "--mesh", "data=1024,model=16", "--machine", "h100-dgx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"] == 16384


def test_programs_without_annotations_run_on_one_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plain.hlo"
    path.write_text(PLAIN)
    assert main(["simulate", str(path), "--machine", "a100-dgx"]) == 0
    text = capsys.readouterr().out
    assert "1 device" in text
    assert "no products" in text


def test_a_trace_is_written(mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.json"
    assert main(["simulate", mlp, "--machine", "h100-dgx", "--trace", str(out)]) == 0
    assert "perfetto" in capsys.readouterr().err
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--machine", "abacus"], ["no machine 'abacus'", "h100-dgx"]),
        (["--machine", "h100-dgx:16"], ["16 devices", "h100-dgx:4"]),
        (["--machine", "h100-dgx", "--map", "axis_7=nvlink"], ["axis_7", "axis_0"]),
        (["--machine", "h100-dgx", "--map", "axis_0=torus"], ["torus"]),
        (["--machine", "h100-dgx", "--overlap", "sometimes"], ["sometimes", "always"]),
        (["--machine", "h100-dgx", "--trace", "nowhere/t.json"], ["nowhere"]),
        ([], ["--machine"]),
    ],
)
def test_bad_input_ends_with_a_way_out(
    mlp: str, arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", mlp, *arguments]) == 2
    text = capsys.readouterr().err
    for word in words:
        assert word in text


def test_larger_than_memory_is_an_error_unless_it_is_ignored(
    mlp: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "tiny.toml"
    text = (Path(shardc.__file__).parent / "costs/machines/h100-dgx.toml").read_text()
    machine.write_text(text.replace("memory_bytes = 80_000_000_000", "memory_bytes = 100"))
    assert main(["simulate", mlp, "--machine", str(machine)]) == 2
    text = capsys.readouterr().err
    assert "has 100 B" in text
    assert "--ignore-memory" in text
    assert main(["simulate", mlp, "--machine", str(machine), "--ignore-memory"]) == 0
    assert "LARGER THAN MEMORY" in capsys.readouterr().out
