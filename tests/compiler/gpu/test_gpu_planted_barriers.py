"""Real kernels without one of their barriers: running their threads in several orders finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Samples that do without some of their barriers: a solve forwards divides each row in the thread that wrote it and
#: meets behind the division; the second launch of a top-k finds a few candidates, in order already.
SMALL = {"solves from the right", "the best of long rows"}


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.full)])
def test_no_barrier_can_be_left_out(everything: bool) -> None:
    command = [sys.executable, "-m", "tests.compiler.gpu.planted_barriers", *(["all"] if everything else [])]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split(" | ") for line in done.stdout.splitlines()]
    assert all(r[2] == "ok" for r in rows if r[1] == "0"), "whole kernels"
    removed = [r for r in rows if r[1] != "0"]
    assert not [r for r in removed if r[2] == "ok" and r[0] not in SMALL]
    for name in SMALL if everything else ():
        assert any(r[2] != "ok" for r in removed if r[0] == name)
    assert len(removed) >= 10
