"""The ranks of an MPI job: rank 0 orders, all fetch by key; what one lacks it has from rank 0."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.launcher.test_job import mpiexec
from tests.service.client.remote_service import FakeService, serving

WORKER = (sys.executable, "-m", "tests.service.client.rank_of_a_job")
RANKS = 2


def job(url: str, folder: Path, root: Path, *words: str, ranks: int = RANKS) -> tuple[list[str], str]:
    """From where each rank has its executable, and what was said on stderr; all have the same, and the right sum."""
    done = mpiexec(ranks, *WORKER, *words, cwd=root, SHARDC_SERVER=url, SHARDC_CACHE_DIR=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    # Ranks write side by side, so that line ends may stand together.
    found = re.findall(r"rank \d (compile|service|rank 0) ([0-9a-f]{8})", done.stdout)
    assert len(found) == ranks and len({digest for _, digest in found}) == 1, done.stdout
    assert "sum 64.0000" in done.stdout
    return sorted(came for came, _ in found), done.stderr


@pytest.mark.mpi
def test_every_rank_fetches_by_key(service: FakeService, tmp_path: Path, repository: Path) -> None:
    came, said = job(service.url, tmp_path, repository)
    assert came == ["compile", *["service"] * (RANKS - 1)]  # rank 0's time is that of compiling
    assert service.made == {"CompileOrder": 1} and service.asked["POST /v1/programs"] == 1
    assert service.asked["GET /v1/artifacts"] == 2 + RANKS - 1  # rank 0 asks before and after it is made
    assert said == ""


@pytest.mark.mpi
@pytest.mark.full
@pytest.mark.parametrize("word", ["lonely", "unset"])
def test_a_rank_without_the_service_has_rank_0s(
    service: FakeService, tmp_path: Path, repository: Path, word: str
) -> None:
    came, said = job(service.url, tmp_path, repository, word, ranks=4)
    assert came == ["compile", "rank 0", "service", "service"]
    assert said == ""


@pytest.mark.mpi
def test_away_is_one_warning_of_the_job(tmp_path: Path, repository: Path) -> None:
    came, said = job("http://127.0.0.1:9", tmp_path, repository)
    assert came == ["compile", *["rank 0"] * (RANKS - 1)]
    assert said.count("programs are compiled here") == 1


@pytest.mark.mpi
@pytest.mark.full
def test_what_is_damaged_on_its_way_comes_from_rank_0(tmp_path: Path, repository: Path) -> None:
    sent: list[str] = []

    def spoil(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
        if status == 200 and path.endswith("executable.shardc"):  # rank 0 asks before it is made, too
            sent.append(path)
            return status, content if len(sent) == 1 else bytes(len(content))
        return status, content

    with serving(spoil=spoil) as service:
        came, said = job(service.url, tmp_path, repository)
    assert came == ["compile", *["rank 0"] * (RANKS - 1)] and len(sent) == RANKS
    assert said == ""
