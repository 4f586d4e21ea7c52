"""The reference pages say all that is there: every option of every command, as `--help` prints it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from shardc.cli.app import app, main

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The section of the page by command."""
    text = runpy.run_path(str(ROOT / "docs/extensions/command_reference.py"))["command_sections"]()
    return dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_help_is_in_the_reference(
    command: str, sections: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    options = set(re.findall(r"^\S [* ]{0,6}(--[a-z][\w-]*)", printed, re.MULTILINE)) - {"--help"}
    assert options, printed
    written = re.findall(r"^\| (.*?) \| ", sections[command], re.MULTILINE)
    assert options <= {name for cell in written for name in re.findall(r"`(--?[\w-]+)`", cell)}
