"""What SHARDC_DUMP_TO and SHARDC_DUMP_PASSES write, and what they say where nothing can be or is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardc.cli.app import main
from shardc.hlo.passes import DumpedPasses

ROOT = Path(__file__).parents[2]
STEP = ROOT / "examples/hlo_annotated/mlp.hlo"


def test_patterns_without_a_pass_are_told(caplog: pytest.LogCaptureFixture) -> None:
    found = DumpedPasses()
    assert [found.wants("partitoin", name) for name in ("simplify", "partition", "partition")] == [False] * 3
    assert [found.wants("fuse", name) for name in ("simplify", "fuse")] == [False, True]
    found.tell()
    (told,) = caplog.messages
    assert told.endswith("matches no pass that ran, so nothing was written; did you mean partition?")
    caplog.clear()
    other = DumpedPasses({"xxx": ["simplify", "fuse"]})
    other.tell()
    assert caplog.messages[0].endswith("these ran: simplify, fuse")


def test_a_command_tells_it_once(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    environment = {**os.environ, "SHARDC_DUMP_TO": str(folder), "SHARDC_DUMP_PASSES": "xxx"}
    line = [sys.executable, "-m", "shardc", "run", str(STEP)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=100, check=True)
    assert done.stderr.count("SHARDC_DUMP_PASSES='xxx' matches no pass that ran") == 1
    assert not folder.exists()


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHARDC_DUMP_TO", "/proc/zz")
    assert main(["partition", str(STEP)]) == 2
    error = capsys.readouterr().err
    assert "error: /proc/zz cannot be written" in error
    assert "where: environment variable SHARDC_DUMP_TO\n  fix: name a place that you may write to" in error
