"""A side of a measurement in a process of its own: lines in, a line of JSON back for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["Worker", "peak_bytes"]


def peak_bytes(compiled: Any) -> int:
    """Memory that a device needs for a call of what JAX compiled, by the compiler's own figures."""
    m = compiled.memory_analysis()
    return int(m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes + m.temp_size_in_bytes)


class Worker:
    """A script of this folder, with JAX on a ``platform`` and XLA's ``flags`` if there are any."""

    def __init__(self, script: str, *arguments: str, flags: str = "", platform: str = "cpu") -> None:
        environment = {**os.environ, "JAX_PLATFORMS": platform, **({"XLA_FLAGS": flags} if flags else {})}
        command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, word: str) -> dict[str, Any]:
        """Its answer to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
