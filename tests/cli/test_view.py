"""What commands print on a terminal and into files."""

from __future__ import annotations

import io
import os
import sys

import pytest

from shardc.cli.view import View, print_error, wrapped

ERROR = """error: no plan was found within 11.4 MiB of memory per device
  where: %dot.3, step.py:17
  fix: give more memory"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_lines_are_broken_between_words_and_indented() -> None:
    assert wrapped(ERROR, 40).splitlines() == [
        "error: no plan was found within 11.4 MiB",
        "  of memory per device",
        "  where: %dot.3, step.py:17",
        "  fix: give more memory",
    ]


def test_empty_lines_and_long_words_stay_whole() -> None:
    assert wrapped("a\n\n" + "b" * 50, 40) == "a\n\n" + "b" * 50


@pytest.mark.parametrize(("stream", "lines"), [(Terminal(), 4), (io.StringIO(), 3)])
def test_only_a_terminal_gets_broken_lines(stream: io.StringIO, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "fileno", lambda: 2)
    monkeypatch.setattr("os.get_terminal_size", lambda _: os.terminal_size((41, 24)))
    monkeypatch.setattr(sys, "stderr", stream)
    print_error(ERROR)
    assert len(stream.getvalue().splitlines()) == lines


def test_a_terminal_gets_the_tables_that_a_file_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    told = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        View().table("meshes", ("mesh", "algorithm"), [("data=1,model=16", "recursive doubling"), ("data=16", "x")])
        told.append(stream.getvalue())
    assert told[0] == told[1] and "data=1,model=16  recursive doubling\n" in told[0]
