"""Accidents at every collective of every rank: the job ends, says who it was, and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launcher.fault_program import COLLECTIVES

pytestmark = pytest.mark.mpi

RANKS = 4
#: Seconds that ranks wait for each other.
PATIENCE = 3
FAULTS = ("kill", "stop", "raise", "exit", "skip")
#: Each fault, each rank and the ends of the step; the rest is for `make test-full`.
SAMPLE = [
    ("kill", 0, 0),
    ("stop", 4, 1),
    ("raise", 6, 3),
    ("exit", 8, 2),
    ("skip", 3, 1),
    ("skip", 8, 0),
    ("freeze", 2, 2),
]
FULL = [case for case in itertools.product(FAULTS, range(COLLECTIVES), range(RANKS)) if case not in SAMPLE]


def run(fault: str, at: int, victim: int, folder: Path, repository: Path, *, timeout: float) -> tuple[int, str]:
    """Exit code and stderr of the job."""
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(RANKS), sys.executable, "-m"]
    line += ["tests.launcher.fault_worker", fault, str(at), str(victim), str(folder)]
    environ = {**os.environ, "SHARDC_TIMEOUT": str(timeout)}
    done = subprocess.run(line, cwd=repository, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def alive(pid: int) -> bool:
    """Is there such a process, and not only its exit code?"""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def shared_files(folder: Path) -> set[str]:
    """Files in shared memory that the ranks used."""
    return {name for maps in folder.glob("*.maps") for name in re.findall(r"/dev/shm/\S+$", maps.read_text(), re.M)}


def check(fault: str, at: int, victim: int, folder: Path, repository: Path) -> str:
    """Run a case; what it said."""
    code, said = run(fault, at, victim, folder, repository, timeout=PATIENCE)
    assert code == 1, said
    if fault == "raise":
        assert f"[{victim}] ValueError: boom" in said
        assert " error: " not in said
    else:
        told = re.findall(r"^\[\d\] error: (.*)", said, re.MULTILINE)
        assert len(told) == 1, said
        assert re.match(rf"rank {victim} \(pid \d+ on \S+\) ", told[0]), said
        assert " and rank " not in told[0], said
    if fault in ("stop", "freeze"):
        where = r"did not reach [a-z-]+ %\w+ \(collective \d\), (group|pairs) [\d, to]+ "
        assert re.search(where + rf"\(after {PATIENCE} s\)", told[0]), said
    pids = [int(p.read_text()) for p in folder.glob("rank*.pid")]
    assert len(pids) == RANKS
    deadline = time.monotonic() + 20
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [p for p in pids if alive(p)]
    assert not (folder / "out").exists()
    assert not [name for name in shared_files(folder) if Path(name).exists()]
    return said


def test_without_an_accident(tmp_path: Path, repository: Path) -> None:
    code, said = run("none", 0, 0, tmp_path, repository, timeout=60)
    assert (code, said.count("error")) == (0, 0), said
    assert (tmp_path / "out").stat().st_size == 4 + 32 * 4


@pytest.mark.parametrize(("fault", "at", "victim"), SAMPLE)
def test_some_accidents(fault: str, at: int, victim: int, tmp_path: Path, repository: Path) -> None:
    check(fault, at, victim, tmp_path, repository)


@pytest.mark.full
@pytest.mark.parametrize(("fault", "at", "victim"), FULL)
def test_all_accidents(fault: str, at: int, victim: int, tmp_path: Path, repository: Path) -> None:
    check(fault, at, victim, tmp_path, repository)
