"""XLA's own HLO parser as the judge of texts, in a child process, as it aborts on some."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

import pytest

_CHILD = """
import json, sys
from jaxlib import _hlo
options = _hlo.HloPrintOptions()
options.canonicalize_instruction_names = True
options.canonicalize_computations = True
options.print_large_constants = True
options.print_metadata = True
for line in sys.stdin:
    try:
        printed, error = _hlo.hlo_module_from_text(json.loads(line)).to_string(options), ""
    except Exception as e:
        printed, error = "", str(e) or "error"
    print("VERDICT" + json.dumps([error, printed]), flush=True)
"""


@dataclass(frozen=True)
class Verdict:
    """``error`` is empty for accepted text; ``printed`` is XLA's own print of it, with canonical names."""

    error: str
    printed: str

    @property
    def accepted(self) -> bool:
        return not self.error


class XlaParser:
    """One child process that parses texts one by one; it is started again when a text aborts it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> XlaParser:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None:
        if self._child is not None:
            self._child.communicate()
            self._child = None

    def __call__(self, text: str) -> Verdict:
        """XLA's verdict; a text that aborts the child counts as refused."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CHILD],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(text) + "\n")
            self._child.stdin.flush()
            for line in self._child.stdout:
                if line.startswith("VERDICT"):
                    return Verdict(*json.loads(line.removeprefix("VERDICT")))
        except BrokenPipeError:
            pass
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.stdout.close()
        code, self._child = self._child.wait(), None
        return Verdict(f"XLA aborted with exit code {code}", "")


def judge(texts: Mapping[str, str]) -> dict[str, Verdict]:
    """XLA's verdict on each text."""
    pytest.importorskip("jaxlib._hlo")
    with XlaParser() as parse:
        return {name: parse(text) for name, text in texts.items()}
