"""No rank outlives its job, however the job is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_folders import LIBRARIES, environment

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(sys.platform != "linux", reason="told by Linux's /proc")]

#: Each rank writes its number, then sleeps where no Python runs.
RANK = "import os, time, shardc; shardc.process_count(); open(f'pid-{os.getpid()}', 'w').close(); time.sleep(600)"
#: Seconds until all are gone: a launcher gets 5 to end its job.
LIMIT = 15.0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGKILL, -9),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_ranks_end_with_their_job(library: str, number: int, code: int, tmp_path: Path, repository: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "3", sys.executable, "-c", RANK]
    environ = environment(library, repository)
    job = subprocess.Popen(
        line, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        until = time.monotonic() + 60
        while len(ranks := [int(p.name[4:]) for p in tmp_path.glob("pid-*")]) < 3:
            assert job.poll() is None, job.communicate()[0].decode()
            assert time.monotonic() < until, "the ranks never started"
            time.sleep(0.05)
        os.kill(job.pid, number)
        assert job.wait(60) == code
        until = time.monotonic() + LIMIT
        while any(map(alive, ranks)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(alive, ranks))
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        assert job.stdout is not None
        job.stdout.close()
