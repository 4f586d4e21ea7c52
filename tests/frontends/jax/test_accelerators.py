"""JAX is kept off accelerators that it would open in every rank; a plug-in that says it is one stands for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
import jax._src.xla_bridge as xb

def initialize():
    cpu = xb.make_cpu_client
    xb.register_backend_factory("fakegpu", cpu, priority=500)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a plug-in for JAX, in which nobody chose a platform."""
    (tmp_path / "fakegpu_plugin.py").write_text(PLUGIN)
    info = tmp_path / "fakegpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fakegpu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jax_plugins]\nfakegpu = fakegpu_plugin\n")
    out = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}
    out.pop("JAX_PLATFORMS", None)
    return out


def run(code: str, environ: dict[str, str]) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


KEEP = "from shardc.launcher.jobs.accelerators import keep_jax_on_cpu; keep_jax_on_cpu(); "


@pytest.mark.parametrize("code", [KEEP + "import jax; ", "import jax; " + KEEP])
def test_jax_stays_on_the_cpu(code: str, environ: dict[str, str]) -> None:
    out, err = run(code + "print(jax.config.jax_platforms, jax.default_backend())", environ)
    assert out == "cpu cpu"
    assert err.count("JAX stays on the CPU in this process; set JAX_PLATFORMS") == 1


def test_what_the_user_chose_stays(environ: dict[str, str]) -> None:
    out, err = run(KEEP + "import os; print(os.environ['JAX_PLATFORMS'])", {**environ, "JAX_PLATFORMS": "fakegpu,cpu"})
    assert (out, err) == ("fakegpu,cpu", "")


@pytest.mark.parametrize(("rank", "told"), [("0", 1), ("1", 0)])
def test_an_accelerator_that_every_rank_opened(rank: str, told: int, environ: dict[str, str]) -> None:
    """Rank 0 tells, for all of them."""
    code = "import jax; from unittest import mock\nwith mock.patch('jax.default_backend', lambda: 'gpu'):\n "
    code += "jax.devices(); " + KEEP
    _, err = run(code, {**environ, "PMI_SIZE": "2", "PMI_RANK": rank})
    assert err.count("in every rank of this job; set JAX_PLATFORMS=cpu") == told
