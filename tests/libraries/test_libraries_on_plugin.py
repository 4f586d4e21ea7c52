"""Scripts that train with real libraries, and know nothing of ours, give on the platform shardc what they give on cpu.

A script in ``scripts/`` tells numbers (``told.py``). It runs on four devices of either platform, each time in a process
of its own. Libraries that are not installed are skipped: ``pip install -e ".[test,libraries]"`` installs them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plugin_environment import plugin_environment

SCRIPTS = Path(__file__).with_name("scripts")

#: Script -> modules that it needs, and how close its numbers are, relative to the largest of an array.
NEEDS = {
    "flax_linen": (("flax", "optax"), 1e-4),
    "flax_nnx": (("flax", "optax"), 1e-4),
    "optax_optimizers": (("optax",), 1e-4),
    "equinox_modules": (("equinox", "optax"), 1e-4),
    "diffrax_ode": (("diffrax", "optax"), 1e-3),
    "haiku_transforms": (("haiku", "optax"), 1e-4),
    "numpyro_inference": (("numpyro",), 1e-3),
    "orbax_checkpoints": (("orbax.checkpoint",), 0.0),
}
#: In every run; the others are in the full one.
SHORT = {"equinox_modules"}


def told_by(script: str, platform: str, folder: Path) -> list[tuple[str, list[list[float]]]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{script}.py")],
        env=plugin_environment(platform, folder, devices=4), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script} on {platform} ended with {done.returncode}\n{done.stderr[-6000:]}"
    return [item for line in done.stdout.splitlines() for item in json.loads(line).items()]


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    "script", [s if s in SHORT else pytest.param(s, marks=pytest.mark.full) for s in NEEDS]
)  # fmt: skip
def test_script_tells_the_same_on_either_platform(script: str, tmp_path: Path) -> None:
    modules, tolerance = NEEDS[script]
    for module in modules:
        if not is_there(module):
            pytest.skip(f"{module} is not installed")
    want, got = told_by(script, "cpu", tmp_path), told_by(script, "shardc", tmp_path)
    assert [name for name, _ in got] == [name for name, _ in want]
    for (name, leaves), (_, wanted) in zip(got, want, strict=True):
        for g, w in zip(leaves, wanted, strict=True):
            largest = np.abs(w).max(initial=1e-3)
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * largest, err_msg=f"{script}: {name}")


def test_every_script_is_listed() -> None:
    assert {p.stem for p in SCRIPTS.glob("*.py")} == {*NEEDS, "told"}
