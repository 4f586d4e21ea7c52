"""The first process of a rank that joins the job is the rank; what it starts computes by itself, or is told."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.jobs.mpi_environment import detect_launcher, find_library
from shardc.launcher.jobs.mpiexec import find_mpiexec
from shardc.launcher.jobs.rank_process import RANK_VARIABLE, claim_rank

RANK = {"PMI_SIZE": "2", "PMI_RANK": "1"}
WORKER = [sys.executable, "-m", "tests.launcher.forking_worker"]
SPAWNING = f"import subprocess; subprocess.run({[*WORKER, 'nothing']}, close_fds=False)"


def test_a_child_of_a_rank_is_none() -> None:
    environ = dict(RANK)
    assert detect_launcher(environ) is not None
    claim_rank(environ)
    assert detect_launcher(environ) is not None
    code = "from shardc.launcher.jobs.mpi_environment import detect_launcher; print(detect_launcher())"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, check=True)
    assert done.stdout == b"None\n"


def test_a_job_below_a_rank_has_ranks_of_its_own() -> None:
    """Its launcher made their sockets; a socket that this process made is none."""
    mine, other = socket.socketpair()
    with mine, other:
        environ = {**RANK, RANK_VARIABLE: "1:2", "PMI_FD": str(mine.fileno())}
        assert detect_launcher(environ) is None
        code = "from shardc.launcher.jobs.mpi_environment import detect_launcher; print(detect_launcher() is not None)"
        line, fds = [sys.executable, "-c", code], (mine.fileno(),)
        done = subprocess.run(line, env={**os.environ, **environ}, pass_fds=fds, capture_output=True, check=True)
        assert done.stdout == b"True\n"


def test_a_process_without_the_ranks_connection_is_told() -> None:
    with pytest.raises(EnvironmentProblem, match=r"PMI_FD=998 is closed[\s\S]*shardc.process_index\(\) there"):
        claim_rank({**RANK, "PMI_FD": "998"})


def test_two_processes_of_a_rank() -> None:
    mine, other = socket.socketpair()
    with mine, other:
        environ = {**RANK, "PMI_FD": str(mine.fileno())}
        claim_rank(environ)
        assert environ[RANK_VARIABLE] == f"{os.getpid()}:{os.fstat(mine.fileno()).st_ino}"
        code = "from shardc.launcher.jobs.rank_process import claim_rank; claim_rank()"
        line, fds = [sys.executable, "-c", code], (mine.fileno(),)
        given = {**os.environ, **RANK, "PMI_FD": environ["PMI_FD"]}
        done = subprocess.run(line, env=given, pass_fds=fds, capture_output=True, text=True, check=False)
        assert "another process of this rank has joined the job already" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("spawn", r"\[33\.0, 73\.0\]"),
        ("fork", r"this process was forked from a rank .*"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ("before", r"2 \[[01]\] error: this process has no connection to the launcher .*"),
                ("subprocess", r"33\.0"),
                ("exit", r"\b3\n"),
                ("compiled", "this process was forked from a rank .*"),
            )
        ),
    ],
)
def test_processes_of_ranks(how: str, said: str, repository: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "2", *WORKER, how]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(said, done.stdout)) == 2, done.stdout
    assert len(re.findall(r"\b10\.0", done.stdout)) == 4 - 2 * (how == "before"), done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize(
    "wrapper",
    [
        ["sh", "-c", f"{' '.join(WORKER)} nothing; echo over"],
        pytest.param(["nice", *WORKER, "nothing"], marks=pytest.mark.full),
        pytest.param([sys.executable, "-c", SPAWNING], marks=pytest.mark.full),
    ],
    ids=["shell", "nice", "python"],
)
def test_a_wrapper_starts_the_rank(wrapper: list[str], repository: Path) -> None:
    library = find_library()
    assert library is not None
    line = [str(find_mpiexec(library)), "-n", "2", *wrapper]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("10.0") == 4
