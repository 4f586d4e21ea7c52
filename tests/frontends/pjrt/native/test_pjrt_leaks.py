"""Nothing is left of many calls through JAX: arrays, events, errors, executions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plugin_environment import plugin_environment

pytest.importorskip("jax")


def test_nothing_is_left_of_more_than_5000_calls(tmp_path: Path) -> None:
    program = Path(__file__).with_name("leaks_program.py")
    environment = plugin_environment("shardc", tmp_path, devices=2)
    command = [sys.executable, str(program), "500"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "left: 0 0 0"
