"""Jobs and servers that cannot go well are refused with one error of ours, exit code 2, and nothing is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardc.cli.app import main
from shardc.launcher.jobs import mpiexec
from shardc.launcher.jobs.before_start import check_hosts, check_ranks
from shardc.launcher.jobs.hosts import Host
from shardc.launcher.jobs.launcher_output import LauncherOutput
from shardc.launcher.jobs.mpi_environment import detect_launcher, find_library
from shardc.launcher.run import task
from shardc.service import serve as service

JOB = ["mpiexec", "-n", "2"]
REFUSED = {
    "serve --time-limit inf": "--time-limit",
    "serve --time-limit nan": "--time-limit",
    "serve --time-limit 0": "--time-limit",
    "serve --grace inf": "--grace",
    "serve --grace nan": "--grace",
    "serve --grace -1": "--grace",
    "demo --ranks 1000000 --no-jax": "the demo runs on 4 devices, but --ranks is 1000000",
    "demo --ranks -1": "--ranks",
    "mpiexec -n 1000000000 true": "one host would start 1000000000 ranks",
    "mpiexec -n 0 true": "the job would have 0 ranks",
    "mpiexec -n 2 --hosts no-such-host.invalid true": "this machine cannot find no-such-host.invalid",
    "mpiexec -n 2 --hosts localhost,no-such-host.invalid:4 true": "this machine cannot find no-such-host.invalid",
    "mpiexec -n 2 --hosts a:x true": "'a:x' is not a host",
    "mpiexec -n 2 --option nonsense true": "'nonsense' is not an option of the launcher",
    "mpiexec -n 2 --option=--no-such-option true": "the launcher rejected the option",
    "mpiexec -n 2 --option=-l --option true true": "the launcher rejected the option",
}


@pytest.mark.parametrize("line", REFUSED)
def test_nonsense_is_one_error(line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if line.startswith("mpiexec") and (find_library() is None or detect_launcher() is not None):
        pytest.skip("needs an MPI library, outside of a job")

    def started(*_: object, **__: object) -> int:
        raise AssertionError("it was started")

    monkeypatch.setattr(mpiexec, "_supervise", started)
    monkeypatch.setattr(task, "start_ranks", started)
    monkeypatch.setattr(service, "serve", started)
    for name in [n for n in os.environ if n.startswith("HYDRA_")]:
        monkeypatch.delenv(name)
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert not out and err.count("error:") == 1 and err.startswith("error:") and REFUSED[line] in err, err
    assert "bug in shardc" not in err and "Traceback" not in err


def test_a_malformed_variable_is_one_error(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of every rank's."""
    monkeypatch.setenv("SHARDC_TIMEOUT", "x")
    assert main(["mpiexec", "-n", "2", "true"]) == 2
    assert capfd.readouterr().err.startswith("error: SHARDC_TIMEOUT='x' is not a number")


def test_a_python_without_shardc_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_library() is None or detect_launcher() is not None:
        pytest.skip("needs an MPI library, outside of a job")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["mpiexec", "-n", "2", str(python), "train.py"]) == 2
    assert "shardc is not installed" in capfd.readouterr().err


def test_who_reaches_hosts_in_another_way_knows_their_names() -> None:
    hosts = (Host("no-such-host.invalid", 2),)
    check_hosts(hosts, (), {"HYDRA_LAUNCHER_EXEC": "/opt/reach"})
    check_hosts(hosts, ("-launcher", "slurm"), {})
    check_hosts((Host("localhost", 1), Host("127.0.0.1", 1)), (), {})


def test_ranks_count_by_host() -> None:
    check_ranks(8, ())
    check_ranks(40_000_000, tuple(Host(f"h{k}", 10) for k in range(4)))


def test_words_that_the_launcher_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_library() is None or detect_launcher() is not None:
        pytest.skip("needs an MPI library, outside of a job")
    given = []
    monkeypatch.setattr(mpiexec, "_supervise", lambda line, *_: given.append(line) or 0)
    options = mpiexec.JobOptions(words=("-l",))
    assert mpiexec.start_job(2, ["true"], options=options) == 0
    assert given[0][-2:] == ["-l", "true"]


@pytest.mark.parametrize("aborted", [False, True])
def test_exit_codes_that_are_signals_too(aborted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 is a rank that a signal has ended (SIGBUS), unless a rank has given it to ``MPI_Abort``."""
    library = find_library()
    if library is None or library.kind != "mpich" or detect_launcher() is not None:
        pytest.skip("needs MPICH, outside of a job")

    def ended(_: object, __: object, output: LauncherOutput) -> int:
        output.aborted = aborted
        return 7

    monkeypatch.setattr(mpiexec, "_supervise", ended)
    assert mpiexec.start_job(2, ["true"]) == (7 if aborted else 1)
