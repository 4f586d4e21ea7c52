"""Workers on MPI ranks and on a Dask cluster: what holds for processes of this machine holds for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import open_executor
from tests.launcher.executors.executor_scenario import scenario
from tests.launcher.executors.executor_tasks import BAD_TASKS
from tests.launcher.test_faults import alive

PROBLEMS = [
    "ParseError: an odd word",
    "RunError: 'fail' failed with an unexpected error: ValueError: what nobody knows",
    "RunError: the process of 'abort' crashed (SIGABRT)",
    "RunError: the process of 'leave' crashed (exit status 7)",
    "InputError: no task 'unknown'",
    "RunError: 'for_ever' exceeded its limit of 0.3 s and was stopped",
    "RunError: 'fill_memory' needs more memory than the 512.0 MiB that it may have",
]


def check(found: dict[str, Any], kind: str, count: int) -> None:
    assert (found["kind"], found["count"]) == (kind, count)
    assert found["answers"] == list(range(20))
    assert found["large"]
    assert found["problems"] == PROBLEMS
    assert found["begun"]
    assert found["stopped"] == ["RunError: 'sleep' was stopped"] * count
    assert found["stages"] == ["asleep"] * count
    assert len(set(found["pids"])) == count
    assert found["last"] == "last"
    assert not [pid for pid in found["pids"] if alive(pid)]


def test_processes() -> None:
    with open_executor(2, mpi=False, tasks=BAD_TASKS) as workers:
        assert workers is not None
        found = scenario(workers)
    check(found, "processes", 2)


@pytest.mark.mpi
def test_ranks_of_a_job(repository: Path) -> None:
    module = "tests.launcher.executors.executor_scenario"
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "3", sys.executable, "-m", module]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("through") == 3
    found = json.loads(done.stdout)
    check(found, "mpi", 2)
    assert found["left"] == "RunError: 'sleep' was stopped"


@pytest.mark.mpi
def test_a_job_without_other_ranks_has_no_workers() -> None:
    code = "from shardc.launcher.executors.open_executor import open_executor\nwith open_executor(mpi=True): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "EnvironmentProblem: the MPI job has no rank for workers" in done.stderr


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers in this process, with a scheduler on the loopback interface."""
    distributed = pytest.importorskip("distributed")
    where = {"protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, silence_logs=50, **where) as made:
        yield made


def test_a_cluster(cluster: Any) -> None:
    with open_executor(dask=cluster.scheduler_address, tasks=BAD_TASKS) as workers:
        assert workers is not None
        found = scenario(workers)
        left = workers.submit("sleep", b"600", TaskLimits(60))
    check(found, "dask", 2)
    with pytest.raises(RunError, match="'sleep' was stopped"):
        left.future.result(0)
    assert not [name for worker in cluster.workers.values() for name in worker.plugins if name.startswith("shardc")]


def test_a_cluster_is_used_by_two_at_a_time(cluster: Any) -> None:
    """Each has children of its own, with its own environment."""
    found = []
    for value in ("one", "two"):
        environment = {"SHARDC_CACHE_DIR": value}
        with open_executor(dask=cluster.scheduler_address, environment=environment, tasks=BAD_TASKS) as workers:
            assert workers is not None
            answer = workers.submit("look_around", b"", TaskLimits(60)).future.result(60)
            found.append(json.loads(answer)["environment"]["SHARDC_CACHE_DIR"])
    assert found == ["one", "two"]


def test_a_cluster_that_grows(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardc.launcher.executors.on_dask._COUNTING", 0.0)
    with open_executor(dask=cluster.scheduler_address, tasks=BAD_TASKS) as workers:
        assert workers is not None
        assert workers.count == 2
        cluster.scale(3)
        until = time.monotonic() + 60
        while workers.count != 3:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert workers.submit("echo", b"new", TaskLimits(60)).future.result(60) == b"new"


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("shardc.launcher.executors.on_dask._CONNECTING", 0.5)
    with pytest.raises(EnvironmentProblem, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:1'"):
        open_executor(dask="tcp://127.0.0.1:1").__enter__()
    with pytest.raises(EnvironmentProblem, match="no Dask scheduler answers at 'nonsense://x'"):
        open_executor(dask="nonsense://x").__enter__()


def test_without_distributed_the_extra_is_named(repository: Path) -> None:
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "from shardc.launcher.executors.open_executor import open_executor\n"
        "open_executor(dask='tcp://127.0.0.1:1')"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=repository, capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'shardc[dask]'" in done.stderr
