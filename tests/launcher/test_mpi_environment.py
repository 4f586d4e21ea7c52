"""Launchers and libraries are recognised and compared without loading anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.jobs.mpi_environment import Launcher, MpiLibrary, check, detect_launcher, find_library
from shardc.launcher.jobs.mpiexec import find_mpiexec, job_environment, python_command, start_job

MPICH = MpiLibrary("mpich", Path("/opt/mpich/lib/libmpi.so.12"))
OPENMPI = MpiLibrary("openmpi", Path("/usr/lib/libmpi.so.40"))
INTEL = MpiLibrary("intel", Path("/opt/intel/lib/libmpi.so.12"))


@pytest.mark.parametrize(
    ("environ", "kind", "size", "rank"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}, "openmpi", 4, 3),
        ({"PMI_SIZE": "8", "PMI_RANK": "0", "PMI_FD": "5"}, "pmi", 8, 0),
        ({"PMI_SIZE": "8", "PMI_RANK": "2", "SLURM_STEP_NUM_TASKS": "2"}, "pmi", 8, 2),
        ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "6"}, "pmix", 6, 1),
        ({"PMIX_RANK": "1"}, "pmix", 0, 1),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, "slurm", 4, 2),
        ({"SLURM_STEP_NUM_TASKS": "4", "I_MPI_PMI_LIBRARY": "/usr/lib/libpmi.so"}, "pmi", 4, -1),
    ],
)
def test_launchers(environ: dict[str, str], kind: str, size: int, rank: int) -> None:
    launcher = detect_launcher(environ)
    assert launcher is not None
    assert (launcher.kind, launcher.size, launcher.rank) == (kind, size, rank)


@pytest.mark.parametrize("environ", [{}, {"SLURM_NTASKS": "8"}, {"SLURM_STEP_NUM_TASKS": "1"}, {"PMI_SIZE": "1"}])
def test_no_job(environ: dict[str, str]) -> None:
    assert detect_launcher(environ) is None


def launcher(kind: str, evidence: str = "PMI_SIZE=4") -> Launcher:
    return Launcher(kind, 4, 0, evidence)


@pytest.mark.parametrize(
    ("started_by", "library"),
    [
        (launcher("openmpi"), MPICH),
        (launcher("openmpi"), INTEL),
        (launcher("pmi"), OPENMPI),
        (launcher("slurm"), MPICH),
        (launcher("slurm"), OPENMPI),
    ],
)
def test_mismatches(started_by: Launcher, library: MpiLibrary) -> None:
    with pytest.raises(EnvironmentProblem) as failure:
        check(started_by, library)
    text = str(failure.value)
    assert started_by.title in text
    assert library.title in text
    assert "shardc mpiexec -n 4" in text
    assert failure.value.exit_code == 2


@pytest.mark.parametrize(
    ("started_by", "library"),
    [
        (None, MPICH),
        (launcher("openmpi"), OPENMPI),
        (launcher("pmi"), MPICH),
        (launcher("pmi"), INTEL),
        (launcher("pmi", "SLURM_STEP_NUM_TASKS=4"), OPENMPI),
        (launcher("pmix"), OPENMPI),
        (launcher("pmi"), MpiLibrary("unknown", Path("/x/libmpi.so"))),
    ],
)
def test_matches(started_by: Launcher | None, library: MpiLibrary) -> None:
    check(started_by, library)


def test_missing_library(tmp_path: Path) -> None:
    assert find_library({"MPI4PY_LIBMPI": str(tmp_path / "libmpi.so")}) is None
    with pytest.raises(EnvironmentProblem, match=r"no MPI library was found[\s\S]*shardc\[mpich\]"):
        check(None, None)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("libmpi.so.12", b"... Intel(R) MPI Library MPICH", "intel"),
        ("libmpi.so.12", b"... MPICH Version", "mpich"),
        ("libmpi.so", b"... Intel(R) MPI ompi_mpi_comm_self", "openmpi"),
        ("libmpi.so.40", b"...", "openmpi"),
        ("libmpi.so", b"...", "unknown"),
    ],
)
def test_libraries(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(b"\x7fELF" + content)
    for given in (tmp_path, tmp_path / name):
        found = find_library({"MPI4PY_LIBMPI": str(given)})
        assert found == MpiLibrary(kind, tmp_path / name)


def test_linker_scripts_are_not_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libmpi.so").write_text("INPUT(libmpi.so.12)")
    (tmp_path / "libmpi.so.12").write_bytes(b"\x7fELF MPICH")
    found = find_library({"MPI4PY_LIBMPI": str(tmp_path)})
    assert found is not None
    assert found.path.name == "libmpi.so.12"
    script = str(tmp_path / "libmpi.so")
    assert find_library({"MPI4PY_LIBMPI": script}) is None
    monkeypatch.setenv("MPI4PY_LIBMPI", script)
    with pytest.raises(EnvironmentProblem, match=r"libmpi.so is a linker script[\s\S]*name its folder"):
        check(None, None)


def test_the_launcher_beside_the_library_wins_and_must_be_its_own(tmp_path: Path) -> None:
    for folder, version in (("a", "mpirun (Open MPI) 5.0.6"), ("b", "HYDRA build details:")):
        (tmp_path / folder / "bin").mkdir(parents=True)
        (tmp_path / folder / "lib").mkdir()
        script = tmp_path / folder / "bin" / "mpirun"
        script.write_text(f"#!/bin/sh\necho '{version}'\n")
        script.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'a' / 'bin'}:/bin:/usr/bin"}
    mine = MpiLibrary("mpich", tmp_path / "b" / "lib" / "libmpi.so.12")
    assert find_mpiexec(mine, path) == tmp_path / "b" / "bin" / "mpirun"
    with pytest.raises(EnvironmentProblem, match="no launcher for Intel MPI"):
        find_mpiexec(MpiLibrary("intel", tmp_path / "a" / "lib" / "libmpi.so.12"), {"PATH": path["PATH"]})


def test_python_commands_get_the_rank_runner() -> None:
    runner = ["-m", "shardc.launcher.jobs.rank_main"]
    assert python_command(["python", "train.py", "-x"]) == ["python", *runner, "train.py", "-x"]
    assert python_command(["/v/bin/python3.12", "-u", "-X", "dev", "-m", "train"]) == [
        *("/v/bin/python3.12", "-u", "-X", "dev"),
        *runner,
        *("-m", "train"),
    ]
    assert python_command(["python", "-c", "x"]) == ["python", *runner, "-c", "x"]
    assert python_command(["./a.out", "x.py"]) == ["./a.out", "x.py"]
    assert python_command(["python", "-V"]) == ["python", "-V"]


def test_more_ranks_than_cores_need_no_flags_of_the_user() -> None:
    environ = job_environment(OPENMPI, 4096, {"OMP_NUM_THREADS": "2"})
    assert environ["OMP_NUM_THREADS"] == "2"
    assert environ["OPENBLAS_NUM_THREADS"] == "1"
    assert environ["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert environ["OMPI_MCA_rmaps_base_oversubscribe"] == "1"
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in job_environment(MPICH, 4096, {})


def test_starting_jobs_that_cannot_be() -> None:
    with pytest.raises(InputError, match="already part of a job"):
        start_job(2, ["true"], {"PMI_SIZE": "2", "PMI_RANK": "0"})
    with pytest.raises(InputError, match="the job would have 0 ranks"):
        start_job(0, ["true"], {})
    with pytest.raises(EnvironmentProblem, match="no MPI library"):
        start_job(2, ["true"], {"MPI4PY_LIBMPI": "/nowhere/libmpi.so"})


def test_importing_shardc_loads_nothing_heavy() -> None:
    code = (
        "import sys, shardc; shardc.Mesh, shardc.P, shardc.jit, shardc.load, shardc.gather; "
        "print([m for m in ('jax', 'jaxlib', 'llvmlite', 'mpi4py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
