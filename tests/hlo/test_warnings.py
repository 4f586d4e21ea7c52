"""Warnings are counted, and still reach whoever has no handler of logging."""

from __future__ import annotations

import logging

import pytest

from shardc.hlo.warnings import count_warnings


def test_counted_lines_are_still_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("shardc")
    monkeypatch.setattr(log, "propagate", False)
    with count_warnings() as count:
        log.info("nothing")
        log.warning("something")
        log.warning("something else")
    log.warning("later")
    assert count() == 2
    assert capsys.readouterr().err == "something\nsomething else\nlater\n"
