"""Ranks on several hosts: network namespaces of one machine, which share no memory as far as MPI and we know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardc.launcher.jobs.mpi_environment import find_library
from shardc.launcher.jobs.mpiexec import find_mpiexec
from tests.cli.programs import MLP
from tests.collectives.network import Network, network

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(3, tmp_path_factory.mktemp("network")) as made:
        yield made


def job(
    hosts: Network, ranks: tuple[int, ...], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    library = find_library()
    assert library is not None
    if library.kind != "mpich":
        pytest.skip(f"the hosts are entered by MPICH's launcher, the library is {library.title}")
    command = [*hosts.mpiexec(find_mpiexec(library), ranks), sys.executable, "-m", "mpi4py", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("ranks", [(2, 2, 0), pytest.param((1, 2, 1), marks=pytest.mark.full)])
def test_random_collectives(hosts: Network, ranks: tuple[int, ...], repository: Path) -> None:
    used = Network(tuple(h for h, n in zip(hosts.hosts, ranks, strict=True) if n), hosts.here, hosts.enter)
    done = job(used, tuple(filter(None, ranks)), "-m", "tests.collectives.mpi_worker", "8", "hosts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on {len(used.hosts)} nodes" in done.stdout


def test_a_program_gives_the_bits_of_virtual_devices(hosts: Network, tmp_path: Path) -> None:
    (tmp_path / "mlp.hlo").write_text(MLP)
    line = [sys.executable, "-m", "shardc", "run", str(tmp_path / "mlp.hlo"), "--json", "--seed", "5"]
    here = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    used = Network(hosts.hosts[:2], hosts.here, hosts.enter)
    there = job(used, (3, 1), *line[1:])
    assert there.returncode == 0, there.stdout + there.stderr
    found, wanted = json.loads(there.stdout), json.loads(here.stdout)
    assert (found["ranks"], found["results"]) == (4, wanted["results"])


@pytest.mark.parametrize(
    ("ranks", "fault", "words"),
    [
        ((2, 2), "stop", ["rank 3 (pid", "stopped"]),
        pytest.param((3, 1), "sleep", ["rank 3 on {0[1]}"], marks=pytest.mark.full),
        pytest.param((2, 2), "kill", [], marks=pytest.mark.full),
    ],
)
def test_a_rank_of_another_host_is_missing(
    ranks: tuple[int, ...], fault: str, words: list[str], hosts: Network, tmp_path: Path
) -> None:
    """All end; those who know it best say who it was."""
    used = Network(hosts.hosts[:2], hosts.here, hosts.enter)
    begun = time.monotonic()
    done = job(used, ranks, "-m", "tests.launcher.fault_worker", fault, "1", "3", str(tmp_path), SHARDC_TIMEOUT="3")
    assert done.returncode != 0
    assert time.monotonic() - begun < 60
    for word in words:
        assert word.format(hosts.hosts) in done.stderr, done.stderr
