"""MPI ranks against virtual devices, bit for bit, in one job each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardc.launcher.jobs.mpi_environment import find_library
from shardc.launcher.jobs.mpiexec import find_mpiexec
from tests.launcher.job_folders import FOLDERS, environment

pytestmark = pytest.mark.mpi


def job(ranks: int, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    library = find_library()
    assert library is not None
    command = [str(find_mpiexec(library)), "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("ranks", "cases", "nodes"),
    [
        (4, 12, ""),
        (4, 10, "0,0,1,1"),
        pytest.param(3, 60, "", marks=pytest.mark.full),
        pytest.param(5, 60, "0,1,0,0,2", marks=pytest.mark.full),
    ],
)
def test_random_collectives(ranks: int, cases: int, nodes: str, repository: Path) -> None:
    done = job(ranks, "-m", "tests.collectives.mpi_worker", str(cases), nodes, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("compared ")


@pytest.mark.parametrize("nodes", ["", "0,0,1,1"])
def test_ranks_in_different_collectives_are_found_out(nodes: str, repository: Path) -> None:
    done = job(4, "-m", "tests.collectives.mpi_worker", "diverge", nodes, cwd=repository)
    assert done.returncode != 0
    assert "RunError" in done.stderr
    assert "different branch" in done.stderr


@pytest.mark.parametrize("folder", FOLDERS or [pytest.param("", marks=pytest.mark.skip(reason="no other MPI"))])
@pytest.mark.parametrize("nodes", ["", "0,1,0,1"])
def test_other_libraries(folder: str, nodes: str, repository: Path) -> None:
    """Those that `SHARDC_TEST_MPI` names; handles have 4 bytes (Intel MPI) or 8 (Open MPI)."""
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4"]
    line += [sys.executable, "-m", "tests.collectives.mpi_worker", "30", nodes]
    variables = environment(folder, repository)
    done = subprocess.run(line, cwd=repository, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("compared ")


@pytest.mark.full
def test_many_random_collectives(repository: Path) -> None:
    for nodes in ("", "0,0,1,1", "0,1,0,1", "0,0,0,0"):
        done = job(4, "-m", "tests.collectives.mpi_worker", "1000", nodes, cwd=repository)
        assert done.returncode == 0, done.stdout + done.stderr
