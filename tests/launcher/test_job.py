"""Jobs of MPI ranks: they compute, and any rank's failure ends all of them at once with that rank's error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

WORKER = ("-m", "tests.launcher.job_worker")


def mpiexec(ranks: int, *command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", str(ranks), *command]
    return subprocess.run(
        line, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("ranks", "devices"), [(4, 7), (2, 2), *(pytest.param(*n, marks=pytest.mark.full) for n in ((4, 4), (3, 12)))]
)
def test_ranks_own_one_or_several_devices(ranks: int, devices: int, repository: Path) -> None:
    done = mpiexec(ranks, sys.executable, *WORKER, str(devices), cwd=repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"done on {ranks} ranks 46.0\n"


@pytest.mark.parametrize(
    ("trouble", "code", "messages"),
    [
        ("raise", 1, ["[2] ValueError: boom"]),
        ("exit", 3, ["[1] exited with status 3"]),
        ("kill", 1, []),
        ("part", 2, ["] error: this process holds only a part of y (f32[10])", "fix: call shardc.gather(x)"]),
        ("all-fail", 2, ["[0] error: an array of shape [10] was given, but the parameter has [3]"]),
        ("other-program", 2, ["hold different programs: they differ in their name (ranks [0, 2, 3] have"]),
    ],
)
def test_a_failing_rank_ends_the_job(trouble: str, code: int, messages: list[str], repository: Path) -> None:
    done = mpiexec(4, sys.executable, *WORKER, "6", trouble, cwd=repository)
    assert done.returncode == code, done.stderr
    for message in messages:
        assert done.stderr.count(message) == 1, done.stderr


def test_ranks_with_different_arguments_are_found_out(repository: Path) -> None:
    for check in ("", "1"):
        done = mpiexec(4, sys.executable, *WORKER, "4", "other-values", cwd=repository, SHARDC_CHECK=check)
        assert done.returncode == 2
        assert "the ranks were given different values: rank" in done.stderr
        assert "where: argument 0 (x)" in done.stderr


def test_the_check_finds_ranks_with_different_copies_of_an_array(repository: Path) -> None:
    done = mpiexec(4, sys.executable, *WORKER, "4", "other-copies", cwd=repository, SHARDC_CHECK="1")
    assert done.returncode == 2, done.stderr
    assert "ranks 2 and 3 hold different copies of [2:4, 0:2]" in done.stderr
    assert "where: argument 0 (x)" in done.stderr


def test_a_rank_that_never_comes_is_waited_for_a_bounded_time(repository: Path, tmp_path: Path) -> None:
    environment = {"SHARDC_TIMEOUT": "2", "SHARDC_DUMP_TO": str(tmp_path)}
    done = mpiexec(4, sys.executable, *WORKER, "4", "stop", cwd=repository, **environment)
    assert done.returncode == 1
    assert re.search(
        r"error: rank 1 \(pid \d+ on \S+\) did not reach all-reduce %ar \(collective 0\), group 0,1,2,3 \(after 2 s\)"
        r"\n"
        r".* rank 1 .*: it is in the user's code, outside of a step, after 1 collective; its last: %ar .* ms\n"
        r".* rank 0 .*: it waits in all-reduce %ar \(collective 0\) of fake, step 2, group 0,1,2,3, for 2.\d s\n",
        done.stderr,
    ), done.stderr
    (recorded,) = [json.loads(p.read_text()) for p in tmp_path.glob("flight-recorder.rank*.json")]
    assert [(p["peer"]["rank"], p["begun"]) for p in recorded["processes"]] == [(0, 2), (1, 1), (2, 2), (3, 2)]
    assert recorded["error"] in done.stderr.replace("[0] ", "").replace("[2] ", "").replace("[3] ", "")
    assert "fake.py:3" in done.stderr


DIES = """
import os, sys, time
import numpy as np, shardc
rank = shardc.process_index()
x = shardc.array(np.ones((8, 4), np.float32), (shardc.Mesh({"data": 2}), shardc.P("data")))
print(float(shardc.gather((x * x).sum())))
if "die" in sys.argv and rank == 0:
    os._exit(3)
shardc.gather((x + x).sum())
"""


def test_dumped_programs_do_not_change_a_job(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    done = mpiexec(2, sys.executable, "-c", DIES, cwd=tmp_path, SHARDC_DUMP_TO=str(dumps))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("32.0") == 2
    assert list(dumps.glob("*.hlo")) and not list(dumps.glob("flight-recorder*"))


def test_the_launcher_writes_the_flight_recorder_of_a_rank_that_died(tmp_path: Path) -> None:
    done = mpiexec(2, sys.executable, "-c", DIES, "die", cwd=tmp_path, SHARDC_DUMP_TO=str(tmp_path))
    assert done.returncode != 0
    (recorded,) = [json.loads(p.read_text()) for p in tmp_path.glob("flight-recorder.*.json")]
    assert [p["peer"]["rank"] for p in recorded["processes"]] == [0, 1]
    assert recorded["error"].splitlines()[0] in done.stderr
    assert [plan["name"] for plan in recorded["programs"].values()]


def test_plain_python_under_mpiexec_ends_too(repository: Path) -> None:
    from shardc.launcher.jobs.mpi_environment import find_library
    from shardc.launcher.jobs.mpiexec import find_mpiexec

    library = find_library()
    assert library is not None
    line = [str(find_mpiexec(library)), "-n", "4", sys.executable, *WORKER, "4", "raise"]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "[2] ValueError: boom" in done.stderr


def test_too_many_ranks(repository: Path) -> None:
    done = mpiexec(4, sys.executable, *WORKER, "3", cwd=repository)
    assert done.returncode == 2
    assert done.stderr.count("the program runs on 3 devices, but the job has 4 ranks") == 1
    assert "fix: start 3 ranks or fewer, or use a mesh of 4 or more devices: each rank needs one" in done.stderr


def test_a_job_inside_of_a_job_is_refused(repository: Path) -> None:
    done = mpiexec(2, sys.executable, "-m", "shardc", "mpiexec", "-n", "2", "true", cwd=repository)
    assert done.returncode == 2
    # Equal errors are printed once where ranks find them within a second or two, which a loaded machine may not give.
    assert 1 <= done.stderr.count("this process is already part of a job") <= 2


LINES = "import os, sys; sys.stdout.write('a '); os.write(1, b'|'); print('b', flush=False); os.write(1, b'c')"


def test_a_rank_writes_lines_at_once(repository: Path) -> None:
    """Also where Python buffers nothing, so that lines of several ranks do not mix."""
    done = mpiexec(1, sys.executable, "-c", LINES, cwd=repository, PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stdout) == (0, "|a b\nc"), done.stderr


def test_other_programs_run_as_they_are(repository: Path) -> None:
    done = mpiexec(2, "echo", "-n", "x", cwd=repository)
    assert (done.returncode, done.stdout) == (0, "xx")


def test_plain_python_under_the_launcher_of_another_mpi(repository: Path) -> None:
    """Told once per node, exit code 2, no traceback."""
    environ = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    line = [sys.executable, *WORKER, "4"]
    done = subprocess.run(line, cwd=repository, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("[1] error: the job was started by Open MPI's mpirun (OMPI_COMM_WORLD_SIZE=2)")
    assert "Traceback" not in done.stderr
