"""Sweeps at the service with real workers: as many as there are, the same bytes, whatever becomes of one of them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scheduler_support import a_scheduler, a_store, over, until

from shardc.analysis.sweep.run import sweep
from shardc.frontends.load import load_program
from shardc.hlo.codec import plain
from shardc.hlo.config import Config
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import open_executor
from shardc.launcher.executors.running import Running, Workers
from shardc.service.jobs import Job
from shardc.service.orders import SweepOrder, SweepSet, to_json
from shardc.service.scheduler.scheduler import Scheduler
from shardc.service.store.store import Store
from shardc.service.workers.package import unpack
from shardc.service.workers.pieces import PART_FILE, OrderPart
from tests.service.service_harness import ROOT, TOKEN, Service, children, eventually

LAYER = """HloModule layer
ENTRY e {
  x = f32[4096,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  ROOT y = f32[4096,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SETS = {"rows": {"x": "data"}, "columns": {"x": "data", "w": "None,model"}, "wrong": {"v": "data"}}
ORDER = SweepOrder(
    program=hashlib.sha256(LAYER.encode()).hexdigest(),
    name="layer.hlo",
    machine="h100-dgx",
    mesh={"data": 1, "model": 1},
    devices=(4, 8),
    sets=tuple(SweepSet(name=name, annotations=specs) for name, specs in SETS.items()),
)
#: One that goes on for a minute or longer.
LONG = replace(ORDER, devices=tuple(2**n for n in range(4, 15)), mesh={"data": 1, "model": 1, "more": 1})
LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")


class Watched:
    """Workers, and the parts of orders that they were given."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._lock = workers, threading.Lock()
        self.parts, self.going, self.most, self.kind = list[OrderPart](), 0, 0, workers.kind

    @property
    def count(self) -> int:
        return self._workers.count

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Any = None) -> Running:
        self.parts.append(plain.from_json(OrderPart, unpack(payload)[0].get(PART_FILE, b"{}")))
        self._count(1)
        running = self._workers.submit(task, payload, limits, progress)
        running.future.add_done_callback(lambda _: self._count(-1))
        return running

    def _count(self, more: int) -> None:
        with self._lock:
            self.going += more
            self.most = max(self.most, self.going)


@contextmanager
def a_service(
    folder: Path, limits: TaskLimits | None = None, **where: Any
) -> Iterator[tuple[Scheduler, Store, Watched]]:
    """A scheduler with real workers, who keep what they find in a cache of their own."""
    with ExitStack() as stack:
        environment = {"SHARDC_CACHE_DIR": str(folder / "cache")}
        workers = stack.enter_context(open_executor(**where, mpi=False, environment=environment))
        assert workers is not None
        store, watched = stack.enter_context(a_store(folder)), Watched(workers)
        store.put_program(LAYER.encode())
        yield stack.enter_context(a_scheduler(folder, watched, store, limits=limits)), store, watched


def made(scheduler: Scheduler, store: Store, job: Job) -> bytes:
    """The result of a job that ends well."""
    ended = over(scheduler, job)
    assert ended.state == "done", ended.problem
    return store.read(job.key, "sweep.json")


def far(scheduler: Scheduler, job: Job, done: int) -> bool:
    """Is ``job`` as far as that?"""
    now = scheduler.job(job.id)
    return now is not None and now.progress.get("done", 0) >= done


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What this process finds by itself."""
    config = Config(cache_dir=tmp_path_factory.mktemp("cache"))
    program = replace(load_program(LAYER.encode(), "layer.hlo"), config=config)
    mesh = {"data": 1, "model": 1}
    return plain.to_json(sweep(program, devices=[4, 8], machine="h100-dgx", sets=SETS, mesh=mesh, jobs=1)).encode()


def test_one_and_three_workers_find_what_this_process_does(tmp_path: Path, alone: bytes) -> None:
    for count in (1, 3):
        with a_service(tmp_path / str(count), workers=count) as (scheduler, store, watched):
            assert made(scheduler, store, scheduler.submit(ORDER)) == alone
            assert watched.most == count
            pieces = [part.piece for part in watched.parts if part.piece]
            assert len(pieces) == len(set(pieces)) == (0 if count == 1 else 25)
            assert scheduler.statistics().tasks == {"sweep": 1}


def test_a_cluster_finds_what_this_process_does(tmp_path: Path, alone: bytes) -> None:
    distributed = pytest.importorskip("distributed")
    where = {"protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, silence_logs=50, **where) as used,
        a_service(tmp_path, dask=used.scheduler_address) as (scheduler, store, watched),
    ):
        assert made(scheduler, store, scheduler.submit(ORDER)) == alone
        assert watched.most == 2


@LINUX
def test_workers_killed_in_the_middle_cost_nothing(tmp_path: Path, alone: bytes) -> None:
    with a_service(tmp_path, workers=2) as (scheduler, store, _):
        job = scheduler.submit(ORDER)
        until(lambda: far(scheduler, job, 3))
        for pid in children(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert made(scheduler, store, job) == alone


@LINUX
def test_cancelling_ends_the_pieces_where_they_run(tmp_path: Path) -> None:
    with a_service(tmp_path, workers=2) as (scheduler, store, watched):
        job = scheduler.submit(LONG)
        until(lambda: far(scheduler, job, 3) and watched.going == 2)
        scheduler.cancel(job.id)
        until(lambda: watched.going == 0)
        number = len(watched.parts)
        made(scheduler, store, scheduler.submit(replace(ORDER, devices=(4,), sets=ORDER.sets[:1])))
        assert len(watched.parts) == number + 1


def test_time_runs_out_for_the_order_and_not_for_each_piece(tmp_path: Path) -> None:
    with a_service(tmp_path, TaskLimits(seconds=4), workers=2) as (scheduler, _, watched):
        job = over(scheduler, scheduler.submit(LONG))
        assert job.problem is not None
        assert job.problem["what"] == "'order' exceeded its limit of 4 s and was stopped"
        assert job.finished - job.started < 60
        assert watched.parts, "pieces that end in time are counted"
        until(lambda: watched.going == 0)


def cli(*words: str, **environment: str) -> str:
    """What the command prints for people."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith("SHARDC_")} | environment
    line = [sys.executable, "-m", "shardc", "sweep", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=settings, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_sweeps_as_the_command_does_and_tells_how_far_it_is(tmp_path: Path) -> None:
    file, sets = tmp_path / "layer.hlo", tmp_path / "sets.toml"
    file.write_text(LAYER, encoding="utf-8")
    tables = (f"[sets.{n}.annotate]\n" + "".join(f'{k} = "{v}"\n' for k, v in SETS[n].items()) for n in SETS)
    sets.write_text("".join(tables), encoding="utf-8")
    asked = [
        str(file),
        "--devices",
        "4,8",
        "--over",
        f"mesh,{sets}",
        "--machine",
        "h100-dgx",
        "--mesh",
        "data=1,model=1",
    ]
    with Service(tmp_path / "service", workers=2) as service, service.caller() as caller:
        there = cli(*asked, "--server", service.url, SHARDC_TOKEN=TOKEN)
        assert there == cli(*asked, "-j", "2", SHARDC_CACHE_DIR=str(tmp_path / "cache"))
        caller.upload(LAYER)
        job = caller.http.post("/v1/jobs", json=json.loads(to_json(LONG))).json()
        with caller.http.stream("GET", f"{job['href']}/events") as events:
            data = (json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: "))
            told = [next(data)["progress"] for _ in range(40)]
        counts = [(p["done"], p["of"]) for p in told if "done" in p]
        assert len(counts) > 20
        assert counts == sorted(counts)
        assert len({of for _, of in counts}) == 1
        short = caller.made("partition", LAYER, mesh={"data": 2}, annotations={"x": "data"})
        assert short["state"] == "done"
        assert caller.job(job["id"])["state"] == "running"
        caller.http.delete(job["href"])
        eventually(lambda: caller.figure("shardc_jobs_running") == 0, "the sweep to end")
        assert caller.figure("shardc_makings_total") == 3


@pytest.mark.full
def test_a_server_killed_in_the_middle_of_a_sweep_starts_it_again(tmp_path: Path, alone: bytes) -> None:
    with Service(tmp_path, workers=2) as service:
        with service.caller() as caller:
            caller.upload(LAYER)
            job = caller.http.post("/v1/jobs", json=json.loads(to_json(ORDER))).json()
            eventually(lambda: caller.job(job["id"])["progress"].get("done", 0) > 3, "some candidates")
        service.restart()
        with service.caller() as caller:
            ended = caller.over(job)
            assert ended["state"] == "done", ended
            assert caller.file(ended["key"], "sweep.json") == alone


@pytest.mark.mpi
@pytest.mark.full
def test_the_ranks_of_a_job_find_what_this_process_does(tmp_path: Path, alone: bytes) -> None:
    wrapper = (sys.executable, "-m", "shardc", "mpiexec", "-n", "3")
    with Service(tmp_path, workers=0, wrapper=wrapper) as service, service.caller() as caller:
        caller.upload(LAYER)
        ended = caller.over(caller.http.post("/v1/jobs", json=json.loads(to_json(ORDER))).json())
        assert ended["state"] == "done", ended
        assert caller.file(ended["key"], "sweep.json") == alone
        os.kill(json.loads((tmp_path / "stdout").read_text())["pid"], signal.SIGTERM)
        assert service.process is not None
        assert service.process.wait(60) == 0
