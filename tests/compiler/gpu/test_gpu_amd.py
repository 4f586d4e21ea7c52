"""The same emitters make code for AMD GPUs: emitted and assembled, which is all that is said of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiler.gpu.gpu_kinds import KINDS


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.full)])
def test_every_emitter(everything: bool) -> None:
    command = [sys.executable, "-m", "tests.compiler.gpu.amd_kernels", *(["all"] if everything else [])]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split(": ") for line in done.stdout.splitlines()]
    assert {r[0] for r in rows} == {k.emitter for k in KINDS}
    assert not everything or {r[1] for r in rows} == {k.name for k in KINDS}
