"""Eigenvalues of split matrices, and of split batches, on MPI ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.launcher.test_job import mpiexec

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [2, 4])
def test_eigenvalues_on_ranks_are_those_of_numpy(ranks: int, repository: Path) -> None:
    done = mpiexec(ranks, sys.executable, "-m", "tests.launcher.eigh_worker", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "all agree" in done.stdout
