"""What SHARDC_DUMP_TO and SHARDC_DUMP_PASSES write, and what they say where nothing can be or is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.cli.app import main

ROOT = Path(__file__).parents[2]
STEP = ROOT / "examples/hlo_annotated/mlp.hlo"


def test_a_pattern_without_a_pass_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDC_DUMP_TO", str(tmp_path / "dumps"))
    monkeypatch.setenv("SHARDC_DUMP_PASSES", "xxx")
    assert main(["partition", str(STEP), "-o", str(tmp_path / "out.hlo")]) == 0
    assert not (tmp_path / "dumps").exists()


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHARDC_DUMP_TO", "/proc/zz")
    assert main(["partition", str(STEP)]) == 2
    error = capsys.readouterr().err
    assert "error: /proc/zz cannot be written" in error
    assert "where: environment variable SHARDC_DUMP_TO\n  fix: name a place that you may write to" in error
