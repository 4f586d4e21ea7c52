"""Unmodified JAX scripts on the plug-in compute what they compute on JAX's own CPU backend."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.plugin_environment import ROOT, plugin_environment

HERE = Path(__file__).parent
PLATFORMS = ("shardc", "cpu")


def run(script: Path, platform: str, devices: int, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), *arguments],
        env=plugin_environment(platform, folder, devices),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_arrays(tmp_path: Path) -> None:
    """Eager operations, gradients, loops, types, donation; shards on 8 devices; shard_map, pmap, explicit axes."""
    ours, theirs = (tmp_path / f"{platform}.npz" for platform in PLATFORMS)
    for platform, path in zip(PLATFORMS, (ours, theirs), strict=True):
        run(HERE / "array_program.py", platform, 8, tmp_path, str(path))
    with np.load(ours) as mine, np.load(theirs) as other:
        assert set(mine) == set(other)
        for name in other:
            assert (mine[name].shape, mine[name].dtype) == (other[name].shape, other[name].dtype), name
            np.testing.assert_allclose(mine[name], other[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_training(tmp_path: Path) -> None:
    """A transformer with Adam, its state donated: losses as XLA's; the script imports nothing of ours."""
    script = ROOT / "examples" / "jax_training.py"
    assert "import shardc" not in script.read_text(encoding="utf-8")
    losses = [
        [float(loss) for loss in re.findall(r"loss ([\d.]+)", run(script, platform, 4, tmp_path))]
        for platform in PLATFORMS
    ]
    assert len(losses[0]) == 10
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0][-1] < losses[0][0] - 0.5


def test_what_is_refused(tmp_path: Path) -> None:
    """Errors are JAX's own exceptions, with what is the matter, the user's line, and the way out."""
    run(HERE / "refused_program.py", "shardc", 4, tmp_path)
