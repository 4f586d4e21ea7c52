"""What commands print: results on stdout, as tables or JSON; everything else on stderr, with the rank before it."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.hlo.units import bytes_text, seconds_text

__all__ = ["View", "bytes_text", "print_error", "seconds_text"]


@dataclass(frozen=True, slots=True)
class View:
    """How a command talks: ``json`` or tables, and how much of a log."""

    json: bool = False
    verbose: bool = False
    quiet: bool = False

    @property
    def is_speaker(self) -> bool:
        """Only rank 0 of a job prints results and progress."""
        return rank() <= 0

    def result(self, data: Any, render: Callable[[], None]) -> None:
        """Print ``data`` as JSON, or what ``render`` prints."""
        if not self.is_speaker:
            return
        if self.json:
            sys.stdout.write(json.dumps(data, indent=2, allow_nan=False, default=str) + "\n")
        else:
            render()
        sys.stdout.flush()

    def log(self, text: str) -> None:
        """Tell what happens, unless ``-q``."""
        if not self.quiet and self.is_speaker:
            _stderr(text)

    def detail(self, text: str) -> None:
        """Tell what only ``-v`` wants to know."""
        if self.verbose and not self.quiet and self.is_speaker:
            _stderr(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table on stdout, in aligned columns."""
        cells = [[str(c) for c in row] for row in rows]
        widths = [max(len(r[i]) for r in [list(columns), *cells]) for i in range(len(columns))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [columns, *cells]]
        sys.stdout.write("\n".join([title, *lines] if title else lines) + "\n")

    def text(self, text: str) -> None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def rank() -> int:
    """This process's rank in its job, -1 without one; without loading MPI."""
    from shardc.launcher.jobs.mpi_environment import detect_launcher

    launcher = detect_launcher()
    return launcher.rank if launcher is not None else -1


def _stderr(text: str) -> None:
    from shardc.launcher.jobs.failures import prefixed

    number = rank()
    print(prefixed(number, text) if number >= 0 else text, file=sys.stderr, flush=True)


def print_error(text: str) -> None:
    """An error, with ``[rank]`` before each line in a job. A terminal gets lines of its width; tracebacks stay."""
    _stderr(wrapped(text, _columns_of_stderr()) if sys.stderr.isatty() and text.startswith("error: ") else text)


def wrapped(text: str, columns: int) -> str:
    """``text`` in lines of at most ``columns``, broken between words; what goes on is indented."""
    return "\n".join(part for line in text.splitlines() for part in _wrap_line(line, columns) or [line])


def _wrap_line(line: str, columns: int) -> list[str]:
    indent = len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def _columns_of_stderr() -> int:
    """The width of the terminal that stderr goes to, less the room for ``[rank]`` in a job; at least 40."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        columns = 80
    number = rank()
    return max(40, columns - 1 - (len(f"[{number}] ") if number >= 0 else 0))
