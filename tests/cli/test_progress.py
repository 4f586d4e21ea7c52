"""The line that tells what a command does: on a terminal only, not with -q, gone when a stage is done."""

from __future__ import annotations

import io
import logging
import sys
import time

import pytest

from shardc.cli.progress import Line, shown_progress
from shardc.hlo.progress import LOGGER, detail, stage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def listeners() -> list[logging.Handler]:
    return logging.getLogger(LOGGER).handlers


def wait_for(terminal: Terminal, text: str) -> None:
    limit = time.monotonic() + 20
    while text not in terminal.getvalue():
        assert time.monotonic() < limit, terminal.getvalue()
        time.sleep(0.005)


def test_a_stage_is_drawn_with_its_detail_and_erased_at_its_end() -> None:
    terminal = Terminal()
    line = Line(terminal, delay=0, tick=0.005)
    log = logging.getLogger(LOGGER)
    log.addHandler(line)
    log.setLevel(logging.DEBUG)
    try:
        with stage("partition"):
            wait_for(terminal, "partition, 0 s")
            with stage("tidy"):
                detail("%d of %d", 3, 4)
                wait_for(terminal, "partition: tidy: 3 of 4, 0 s")
        assert terminal.getvalue().endswith("\r\033[K")
        size = len(terminal.getvalue())
        time.sleep(0.05)
        assert len(terminal.getvalue()) == size
    finally:
        log.removeHandler(line)
        log.setLevel(logging.NOTSET)
        line.close()


@pytest.mark.parametrize("arguments", [["partition", "-q"], ["run", "--quiet"], ["run", "-vq"], ["sweep"]])
def test_who_does_not_want_it_does_not_get_it(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with shown_progress(arguments):
        assert not listeners()


def test_only_a_terminal_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown_progress(["partition"]):
        assert not listeners()


def test_only_the_first_rank_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    for rank, count in ((0, 1), (1, 0), (-1, 1)):
        monkeypatch.setattr("shardc.cli.view.rank", lambda rank=rank: rank)
        with shown_progress(["partition"]):
            assert len(listeners()) == count
        assert not listeners()
