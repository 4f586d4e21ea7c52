"""``-`` names standard output, where one file is written; where it would be several, it is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardc.analysis.calibrate import calibrate, describe
from shardc.cli.app import main

STEP = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  ROOT y = f32[8,4] negate(x)
}"""


def test_a_calibration_is_written_to_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = SimpleNamespace(cpu="c", cores=2, created="now", rates=[], collectives=[], steps=[])
    monkeypatch.setattr(calibrate, "calibrate", lambda *_: measured)
    monkeypatch.setattr(describe, "machine_text", lambda _, name: f'name = "{name}"\n')
    monkeypatch.chdir(tmp_path)
    for words in (["-o", "-"], ["--output=-"]):
        assert main(["calibrate", *words]) == 0
        out, err = capfd.readouterr()
        assert out == 'name = "this"\n' and "written to standard output" in err
    assert not list(tmp_path.iterdir())


def test_pages_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(STEP)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for words, start, end in (
        (["report", str(file), "--remedies", "0", "-o", "-"], "<!DOCTYPE html>", "</html>"),
        (["visualize", str(file), "--value", "x", "--svg", "-"], "<svg", "</svg>"),
    ):
        assert main(words) == 0
        out = capfd.readouterr().out.strip()
        assert out.startswith(start) and out.endswith(end), words
    for command in ("sweep", "simulate"):
        assert main([command, str(file), "--machine", "h100-dgx", "--pictures", "-"]) == 2
        out, err = capfd.readouterr()
        assert not out and "several pictures cannot go to one file" in err and "name a folder" in err
    assert not list(empty.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_full_disk_is_told(json: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "p.hlo").write_text(STEP)
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "shardc", "explain", "p.hlo", *json]
        done = subprocess.run(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "error: standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
