"""The scheduler with real children: whatever becomes of them, jobs end and the next one is done. And with many jobs."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from scheduler_support import ManualWorkers, Task, a_scheduler, a_store, an_order, over, until
from scheduler_tasks import TASKS

from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import open_executor
from shardc.service.jobs import Job
from shardc.service.orders import PartitionOrder
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.scheduler import Scheduler


@contextmanager
def scheduler_with_children(folder: Path, seconds: float = 60.0) -> Iterator[Scheduler]:
    with ExitStack() as stack:
        store = stack.enter_context(a_store(folder))
        workers = stack.enter_context(open_executor(workers=1, mpi=False, tasks=TASKS))
        assert workers is not None
        scheduler = Scheduler(store, workers, Journal(folder), TaskLimits(seconds=seconds), pause=0.05)
        try:
            yield scheduler
        finally:
            scheduler.close(grace=0)


def named(name: str) -> PartitionOrder:
    return PartitionOrder(program=an_order().program, name=name)


def pid_of(scheduler: Scheduler, job: Job) -> int:
    """The process that has ``job``."""
    pid: int = until(lambda: (now := scheduler.job(job.id)) and now.progress.get("pid"))
    return pid


def ends(pid: int) -> Any:
    def gone() -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return False
        return True

    return until(gone)


@pytest.fixture
def _sees_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the tasks of these tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("_sees_tasks")
def test_crashed_killed_and_stopped_children_cost_their_job_and_nothing_else(tmp_path: Path) -> None:
    with scheduler_with_children(tmp_path) as scheduler:
        crash, fine, refuse, odd, sleep = (
            scheduler.submit(named(n)) for n in ("crash", "fine", "refuse", "odd", "sleep")
        )
        failed = over(scheduler, crash)
        assert failed.problem is not None
        assert (failed.state, failed.problem["error"]) == ("failed", "RunError")
        assert "crashed (SIGABRT)" in failed.problem["what"]
        done = over(scheduler, fine)
        assert done.entry is not None
        assert done.entry.facts["programs"] == (f"program-{an_order().program}",)
        refused = over(scheduler, refuse)
        assert refused.problem is not None
        assert (refused.problem["error"], refused.problem["fix"]) == ("AnnotationError", "name another")
        assert "internal error of the service" in str(over(scheduler, odd).problem)
        assert not list(tmp_path.parent.rglob("odd.txt"))
        os.kill(pid_of(scheduler, sleep), signal.SIGKILL)
        killed = over(scheduler, sleep)
        assert killed.problem is not None
        assert "was killed" in killed.problem["what"]

        again = scheduler.submit(named("sleep"))
        pid = pid_of(scheduler, again)
        scheduler.cancel(again.id)
        ends(pid)
        assert over(scheduler, scheduler.submit(named("finer"))).state == "done"


@pytest.mark.usefixtures("_sees_tasks")
def test_a_runaway_child_ends_by_the_clock(tmp_path: Path) -> None:
    with scheduler_with_children(tmp_path, seconds=0.3) as scheduler:
        job = scheduler.submit(named("sleep"))
        failed = over(scheduler, job)
        assert failed.problem is not None
        assert "exceeded its limit" in failed.problem["what"]


def test_a_crowd_loses_nothing_and_each_order_is_made_once(tmp_path: Path) -> None:
    crowd(tmp_path, threads=8, each=40)


@pytest.mark.full
def test_a_large_crowd_loses_nothing_and_each_order_is_made_once(tmp_path: Path) -> None:
    crowd(tmp_path, threads=32, each=500)


def crowd(folder: Path, threads: int, each: int) -> None:
    """Threads that submit and cancel at two servers of one state."""

    def answer(task: Task) -> None:
        threading.Timer(random.random() * 0.01, succeed, (task,)).start()

    def succeed(task: Task) -> None:
        with suppress(InvalidStateError):  # it was stopped
            task.succeed()

    schedulers, ended, lock = [], [], threading.Lock()

    def customer(number: int) -> None:
        draw = random.Random(number)
        for _ in range(each):
            scheduler = draw.choice(schedulers)
            order = an_order(draw.randrange(20))
            job = scheduler.submit(order)
            heard = threading.Event()
            states: list[Job] = []

            def hear(job: Job, heard: threading.Event = heard, states: list[Job] = states) -> None:
                states.append(job)
                if job.over:
                    heard.set()

            end = draw.choice(schedulers).watch(job.id, hear)
            if draw.random() < 0.1:
                scheduler.cancel(job.id)
            assert heard.wait(60), job
            end()
            with lock:
                ended.append((job, states[-1], order))

    with a_store(folder) as store, ExitStack() as stack:
        workers = [ManualWorkers(2, answer) for _ in range(2)]
        schedulers += [stack.enter_context(a_scheduler(folder, w, store)) for w in workers]
        crew = [threading.Thread(target=customer, args=(n,)) for n in range(threads)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        assert len(ended) == threads * each
        for first, last, _ in ended:
            assert last.state in ("done", "cancelled")
            assert (last.entry is None) == (last.state == "cancelled")
            assert last.entry is None or last.entry.key == first.key
        finished = Counter(
            task.order.name
            for w in workers
            for task in w.tasks
            if not task.running.is_stopped() and task.running.future.exception() is None
        )
        # What was cancelled just when it was made is thrown away, and made again for the next job.
        cancelled = Counter(order.name for _, last, order in ended if last.state == "cancelled")
        assert all(count <= 1 + cancelled[name] for name, count in finished.items()), finished
