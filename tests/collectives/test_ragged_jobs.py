"""Ragged exchanges among MPI ranks, in shared memory and by messages, against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.test_mpi import job

pytestmark = pytest.mark.mpi
WORKER = ("-m", "tests.collectives.ragged_worker")


@pytest.mark.parametrize("nodes", ["", "0,0,1,1", "shared"])
def test_random_programs(nodes: str, repository: Path) -> None:
    done = job(4, *WORKER, "24", nodes, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("compared ")


@pytest.mark.parametrize("nodes", ["0,0,1,1", "shared"])
def test_tables_may_be_overwritten_at_once(nodes: str, repository: Path) -> None:
    done = job(4, *WORKER, "busy", nodes, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("nodes", ["", "shared", "0,0,1,1"])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("wrong", "device 1 (rank 1) sends 4 rows"),
        ("outside", "device 1 (rank 1) sends 0 rows from row 1099511627776 of its data"),
    ],
)
def test_tables_that_do_not_fit(what: str, message: str, nodes: str, repository: Path) -> None:
    done = job(4, *WORKER, what, nodes, cwd=repository)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr
