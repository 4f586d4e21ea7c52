"""Sweeps on workers of every kind: the same result everywhere; a worker that crashes costs its candidate."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardc.analysis.sweep.assess import SweepCandidate, SweepSettings, assess
from shardc.analysis.sweep.result import SweepResult
from shardc.analysis.sweep.run import sweep
from shardc.analysis.sweep.settings import PortableMachine, WorkerSettings
from shardc.analysis.sweep.workers import assess_task
from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError, ParseError, UnsupportedError
from shardc.launcher.executors.frames import to_bytes
from shardc.launcher.executors.open_executor import open_executor
from shardc.sharding.notations.partition_spec import P
from shardc.stages.programs import load

PROGRAM = """HloModule layer
ENTRY e {
  x = f32[4096,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  ROOT y = f32[4096,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SETS = {"rows": {"x": P("data")}, "columns": {"x": P("data"), "w": P(None, "model")}, "wrong": {"xx": P("data")}}
ARGUMENTS: dict[str, Any] = {"devices": [4, 8], "machine": "h100-dgx", "sets": SETS, "axes": ["data", "model"]}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is known from other tests."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "layer.hlo"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def alone(file: Path, tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """What this process finds by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return sweep(file, **ARGUMENTS, jobs=1)


def test_processes_find_the_same(file: Path, alone: SweepResult) -> None:
    heard: list[int] = []
    found = sweep(file, **ARGUMENTS, jobs=3, progress=lambda done, most: heard.append(done))
    assert found == alone
    assert {o.set for o in found.ranked} >= {"rows", "columns"}
    assert {o.reason for o in found.failed if o.set == "wrong"} == {
        "no argument, result or value is named 'xx'; did you mean x?"
    }
    assert heard == list(range(1, len(heard) + 1))


def test_a_cluster_finds_the_same(file: Path, alone: SweepResult) -> None:
    distributed = pytest.importorskip("distributed")
    where = {"protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, silence_logs=50, **where) as made:
        assert sweep(file, **ARGUMENTS, dask=made.scheduler_address) == alone


@pytest.mark.mpi
def test_the_ranks_of_a_job_find_the_same(file: Path, alone: SweepResult, tmp_path: Path) -> None:
    sets = tmp_path / "sets.toml"
    tables = [f"[sets.{s}.annotate]\n" + "".join(f'{k} = "{_text(v)}"\n' for k, v in SETS[s].items()) for s in SETS]
    sets.write_text("".join(tables), encoding="utf-8")
    line = [
        sys.executable, "-m", "shardc", "mpiexec", "-n", "3", sys.executable, "-m", "shardc", "sweep", str(file),
        "--devices", "4,8", "--over", f"mesh,{sets}", "--machine", "h100-dgx", "--mesh", "data=1,model=1", "--json",
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(alone.to_dict()))


@pytest.mark.mpi
@pytest.mark.full
def test_a_job_in_which_nothing_runs_says_so_once(file: Path) -> None:
    line = [
        sys.executable, "-m", "shardc", "mpiexec", "-n", "3", sys.executable, "-m", "shardc", "sweep", str(file),
        "--devices", "4", "--machine", "h100-dgx", "--mesh", "data=1", "--annotate", "v=data",
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("\ncannot run\n") == 1


def _text(spec: P) -> str:
    return ",".join(str(entry) for entry in spec)


def test_a_worker_that_crashes_costs_its_candidate(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its outcome is not kept: it may have been the weather."""
    arguments = {**ARGUMENTS, "sets": {"columns": SETS["columns"]}, "refine": 0, "jobs": 2, "devices": [8, 16]}
    crashing = {"assess": "tests.launcher.executors.executor_tasks:abort"}
    with monkeypatch.context() as patch:
        patch.setattr("shardc.analysis.sweep.where.open_executor", partial(open_executor, tasks=crashing))
        failed = sweep(file, **arguments)
    assert not failed.ranked
    assert {o.reason.partition(" (its last")[0] for o in failed.failed} == {
        "the process of 'assess' crashed (SIGABRT)"
    }  # fmt: skip
    assert len(sweep(file, **arguments).ranked) == len(failed.failed)


def test_a_program_that_workers_cannot_read_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = {"assess": "tests.launcher.executors.executor_tasks:refuse"}
    monkeypatch.setattr("shardc.analysis.sweep.where.open_executor", partial(open_executor, tasks=crashing))
    with pytest.raises(ParseError, match="an odd word"):
        sweep(file, **{**ARGUMENTS, "devices": [8, 16]}, jobs=2)


def test_what_cannot_leave_this_process_is_told(file: Path) -> None:
    program = load(file)
    unreduced = {"partial": {"x": P("data", unreduced=["model"])}}
    here = sweep(program, **{**ARGUMENTS, "sets": unreduced}, jobs=4)
    assert len(here.outcomes) > 4
    with pytest.raises(UnsupportedError, match="cannot be sent to another process"):
        sweep(program, **{**ARGUMENTS, "sets": unreduced}, dask="tcp://127.0.0.1:1")


def test_descriptions_and_measured_times_travel_as_text(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means nothing to a worker, whose folder is another."""
    from shardc.costs.machines.machine import machine_file

    text = machine_file("h100-dgx")[0].read_text(encoding="utf-8").replace('name = "h100-dgx"', 'name = "slow"')
    (tmp_path / "slow.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDC_MACHINE", "slow.toml")
    arguments = {
        **ARGUMENTS,
        "machine": "slow.toml",
        "devices": [8, 16],
        "sets": {"columns": SETS["columns"]},
        "refine": 1,
    }
    two = sweep(file, **arguments, jobs=2)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "other"))
    assert two == sweep(file, **arguments, jobs=1)
    assert two.ranked, two


def test_this_computer_is_no_machine_for_workers_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "this.toml").write_text("", encoding="utf-8")
    monkeypatch.setattr("shardc.costs.machines.machine.this_machine_path", lambda: tmp_path / "this.toml")
    assert PortableMachine.of("this", off_host=False) == PortableMachine("this")
    with pytest.raises(InputError, match=r"machine 'this' means another computer on every worker\n  fix: .*this\.toml"):
        PortableMachine.of("this", off_host=True)


def test_placements_travel_with_their_machine(tmp_path: Path) -> None:
    for name in ("h100-dgx", "h100-dgx:64@model,data", "h100-dgx@model=nvlink"):
        assert PortableMachine.of(name, off_host=True).here(tmp_path) == name


def test_the_task_is_the_same_as_the_function(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = SweepCandidate(8, {"data": 4, "model": 2}, "columns", {"x": "data", "w": "None,model"})
    settings = SweepSettings("h100-dgx")
    program = load(file)
    worker_settings = WorkerSettings.of("h100-dgx", program.config, off_host=True)
    asked = {
        "name": "layer.hlo",
        "mesh": [],
        "candidate": plain.to_plain(candidate),
        "settings": plain.to_plain(settings),
        "worker_settings": plain.to_plain(worker_settings),
    }
    monkeypatch.chdir(tmp_path)
    answer = assess_task(b"".join(to_bytes(asked, PROGRAM.encode())), lambda news: None)
    assert json.loads(answer) == plain.to_plain(assess(program, candidate, settings))
    with pytest.raises(InputError, match="there is no such field"):
        assess_task(b"".join(to_bytes({**asked, "code": "print()"})), lambda news: None)
    with pytest.raises(InputError, match="truncated"):
        assess_task(b"abc", lambda news: None)


@pytest.mark.mpi
@pytest.mark.full
def test_an_interrupt_ends_a_job(file: Path, tmp_path: Path) -> None:
    """Rank 0 tells the others, which wait for it."""
    line = [
        sys.executable, "-m", "shardc", "mpiexec", "-n", "3", sys.executable, "-m", "shardc", "sweep", str(file),
        "--devices", "2..65536", "--machine", "h100-dgx", "--mesh", "data=1,model=1,more=1", "--annotate", "x=data",
        "--annotate", "w=model,more",
    ]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        until = time.monotonic() + 60
        while not list((tmp_path / "cache").glob("sweeps/*/*.json")):  # the first outcome
            assert job.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        said, _ = job.communicate(timeout=60)
    assert job.returncode == 130, said
    assert "Traceback" not in said
