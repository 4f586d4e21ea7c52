"""``shardc check``: exit codes, text, data, annotations of GitHub, and the baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardc.cli.app import main
from tests.cli.programs import MLP


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    program, budget = tmp_path / "mlp.hlo", tmp_path / "budget.toml"
    program.write_text(MLP)
    budget.write_text('baseline = "mlp.json"\n[[forbid]]\nop = "all-reduce"\nexcept = ["m.py:8"]\n')
    return [str(program), "--budget", str(budget)]


def test_within_after_an_update(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *files]) == 2
    assert "--update" in capsys.readouterr().err
    assert main(["check", *files, "--update"]) == 0
    assert main(["check", *files]) == 0
    assert "mlp is within its budget" in capsys.readouterr().out
    assert json.loads((tmp_path / "mlp.json").read_text())["program"] == "mlp"


def test_what_is_exceeded_has_line_reason_and_remedy(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[2]).write_text('[[forbid]]\nop = "all-reduce"\n')
    assert main(["check", *files]) == 1
    text = capsys.readouterr().out
    assert "m.py:8: all-reduce of" in text
    assert "because" in text
    assert "remedy:" in text
    assert main(["check", *files, "--json", "--remedies", "0"]) == 1
    (violation,) = json.loads(capsys.readouterr().out)["violations"]
    assert violation["line"] == "m.py:8"
    assert main(["check", *files, "--github", "--remedies", "0"]) == 1
    assert capsys.readouterr().out.startswith("::error file=m.py,line=8,title=shardc%3A forbid all-reduce::all-reduce")
