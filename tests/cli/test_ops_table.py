"""`shardc ops` fits into a terminal."""

from __future__ import annotations

import pytest

from shardc.cli.app import main


def test_no_line_is_wider_than_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 150
    assert max(map(len, lines)) <= 100
