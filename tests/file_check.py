"""FileCheck's comments, as LLVM's tools read them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from filecheck.finput import FInput, InputRange
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

__all__ = ["file_check"]


class _Matcher(Matcher):
    """The filecheck package's matcher, but CHECK-NOT ends where the next match begins, as in LLVM's FileCheck (the
    package searches the text of that match, too)."""

    begin = -1

    def capture_results(self, match: re.Match[str], capture: Any, op: Any) -> None:
        self.begin = match.start()
        super().capture_results(match, capture, op)

    def check_not(self, op: Any, search_range: InputRange) -> None:
        if search_range.start <= self.begin < search_range.end:
            search_range = InputRange(search_range.start, self.begin)
        super().check_not(op, search_range)


def file_check(case: Path, text: str) -> str:
    """What FileCheck has to say against ``text``; empty if it satisfies the comments in ``case``."""
    options = Options(match_filename=str(case))
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        matcher = _Matcher(options, FInput("output", text), Parser.from_opts(options))
        code = matcher.run()
    return "" if code == 0 else re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue()) + "\n" + text
