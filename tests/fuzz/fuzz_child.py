"""Runs a fuzzer in a process of its own, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["run_fuzzer"]


def run_fuzzer(script: str, *arguments: object, says: str) -> None:
    """Fails with what the fuzzer printed where it found something, or did not say ``says``."""
    command = [sys.executable, str(Path(__file__).parent / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command[1:])}:\n{done.stdout}{done.stderr[-3000:]}", pytrace=False)
    assert says in done.stdout
