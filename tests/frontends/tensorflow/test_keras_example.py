"""The example of Keras 3: its LayoutMap splits the model, and losses are those of JAX alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("keras", "optree")), reason="needs Keras"
)


def test_the_example_runs(repository: Path) -> None:
    command = [sys.executable, str(repository / "examples" / "keras_layout_map.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "over model" in done.stdout and done.stdout.count("with JAX alone") == 3
