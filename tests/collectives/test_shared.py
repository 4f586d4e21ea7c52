"""Ranks of one node in shared memory, against the meaning of collectives, in one job each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.test_mpi import job

pytestmark = pytest.mark.mpi
WORKER = ("-m", "tests.collectives.shared_worker")


@pytest.mark.parametrize(
    ("ranks", "programs"),
    [(4, 24), (3, 10), *(pytest.param(n, 60, marks=pytest.mark.full) for n in (4, 3, 2))],
)
def test_random_programs(ranks: int, programs: int, repository: Path) -> None:
    done = job(ranks, *WORKER, str(programs), cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("compared ")


# More collectives under way than slots, programs that come and go; results that are one memory.
@pytest.mark.parametrize("what", ["many", "sections"])
def test_programs_come_and_go(what: str, repository: Path) -> None:
    done = job(4, *WORKER, what, cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("what", "words"),
    [("diverge", ["different branches", "(collective 0)", "(collective 1)"]), ("unfinished", ["aborted"])],
)
def test_what_goes_wrong_is_named(what: str, words: list[str], repository: Path) -> None:
    done = job(4, *WORKER, what, cwd=repository)
    assert done.returncode != 0
    assert all(w in done.stderr for w in words), done.stderr


@pytest.mark.full
def test_many_random_programs(repository: Path) -> None:
    done = job(4, *WORKER, "1500", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
