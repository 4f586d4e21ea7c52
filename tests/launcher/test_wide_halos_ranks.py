"""Loops that exchange once for several iterations, on MPI ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.launcher.test_job import mpiexec


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_go_several_iterations_by_themselves(ranks: int, repository: Path) -> None:
    done = mpiexec(ranks, sys.executable, "-m", "tests.launcher.wide_halos_worker", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "all agree" in done.stdout
