"""Which devices JAX gives by which name: the platform is asked for as shardc, and its devices say cpu of themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plugin_environment import plugin_environment

pytest.importorskip("jax")

ASK = """
import jax
for name in (None, "cpu", "shardc"):
    try:
        print(name, jax.devices(name)[0].device_kind, jax.devices(name)[0].platform)
    except RuntimeError as e:
        print(name, "none")
"""


@pytest.mark.parametrize(
    ("platforms", "expected"),
    [
        ("shardc", ["None shardc cpu", "cpu shardc cpu", "shardc shardc cpu"]),
        ("shardc,cpu", ["None shardc cpu", "cpu cpu cpu", "shardc shardc cpu"]),
        ("cpu", ["None cpu cpu", "cpu cpu cpu", "shardc none"]),
        ("cpu,shardc", ["None cpu cpu", "cpu cpu cpu", "shardc shardc cpu"]),
        ("", ["None cpu cpu", "cpu cpu cpu", "shardc none"]),
    ],
)
def test_names(platforms: str, expected: list[str], tmp_path: Path) -> None:
    environment = plugin_environment(platforms, tmp_path)
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("SHARDC_NUM_DEVICES", "abc"), ("SHARDC_NUM_DEVICES", "0"), ("SHARDC_TIMEOUT", "x")]
)
def test_the_last_word_on_a_malformed_variable_is_ours(name: str, value: str, tmp_path: Path) -> None:
    """JAX logs what a plug-in raises when it is found, and ends with another error."""
    environment = plugin_environment("shardc", tmp_path, **{name: value, "SHARDC_REPORT_TO": str(tmp_path)})
    line = [sys.executable, "-c", "import jax; jax.devices()"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    last = done.stderr[done.stderr.rindex("RuntimeError: ") :]
    assert last.startswith(f"RuntimeError: Unable to initialize backend 'shardc': {name}='{value}' is not a ")
    assert f"fix: set {name} to a" in last
    assert "list of known backends" not in done.stderr
