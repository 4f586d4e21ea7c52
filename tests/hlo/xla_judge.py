"""XLA's own HLO parser as the judge of texts, in a child process, as it aborts on some."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

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
    name, text = json.loads(line)
    try:
        printed, error = _hlo.hlo_module_from_text(text).to_string(options), ""
    except Exception as e:
        printed, error = "", str(e) or "error"
    print("VERDICT" + json.dumps([name, error, printed]), flush=True)
"""


@dataclass(frozen=True)
class Verdict:
    """``error`` is empty for accepted text; ``printed`` is XLA's own print of it, with canonical names."""

    error: str
    printed: str

    @property
    def accepted(self) -> bool:
        return not self.error


def judge(texts: Mapping[str, str]) -> dict[str, Verdict]:
    """XLA's verdict on each text; a text that aborts the child counts as refused."""
    pytest.importorskip("jaxlib._hlo")
    verdicts: dict[str, Verdict] = {}
    waiting = list(texts)
    while waiting:
        lines = "".join(json.dumps([name, texts[name]]) + "\n" for name in waiting)
        child = subprocess.run(
            [sys.executable, "-c", _CHILD], input=lines, text=True, capture_output=True, timeout=300, check=False
        )
        for line in child.stdout.splitlines():
            if line.startswith("VERDICT"):
                name, error, printed = json.loads(line.removeprefix("VERDICT"))
                verdicts[name] = Verdict(error, printed)
        waiting = [name for name in waiting if name not in verdicts]
        if waiting:
            verdicts[waiting.pop(0)] = Verdict("XLA aborted: " + child.stderr[-300:], "")
    return verdicts
