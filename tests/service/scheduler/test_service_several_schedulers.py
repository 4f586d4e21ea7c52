"""Several servers with one state: single flight between them, jobs of each other, and servers that went down."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from scheduler_support import PROGRAM, ManualWorkers, a_scheduler, a_store, an_order, copy_state, over, until

from shardc.hlo.errors import AnnotationError, EnvironmentProblem
from shardc.service.jobs import Job
from shardc.service.orders import order_key
from shardc.service.scheduler import worker_threads
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.live_servers import LiveServers


def test_one_making_for_jobs_of_two_servers(tmp_path: Path) -> None:
    here, there = ManualWorkers(), ManualWorkers()
    with a_store(tmp_path) as store, ExitStack() as stack:
        one = stack.enter_context(a_scheduler(tmp_path, here, store))
        two = stack.enter_context(a_scheduler(tmp_path, there, store))
        mine = one.submit(an_order())
        here.task(0)
        theirs = two.submit(an_order())
        until(lambda: two.statistics().elsewhere == 1)
        here.tasks[0].succeed()
        made, found = over(one, mine), over(two, theirs)
        assert made.entry == found.entry
        assert (made.cached, found.cached) == (False, True)
        assert there.tasks == []


def test_what_another_server_made_while_an_order_waited_is_not_made_again(tmp_path: Path) -> None:
    here, there = ManualWorkers(), ManualWorkers()
    with a_store(tmp_path) as store, ExitStack() as stack:
        one = stack.enter_context(a_scheduler(tmp_path, here, store))
        two = stack.enter_context(a_scheduler(tmp_path, there, store))
        two.submit(an_order(0))
        busy = there.task(0)
        waiting = two.submit(an_order(1))
        made = one.submit(an_order(1))
        here.task(0).succeed()
        over(one, made)
        busy.succeed()
        assert over(two, waiting).cached
        assert len(there.tasks) == 1


def test_an_error_elsewhere_is_an_error_here_but_for_one_of_the_machine(tmp_path: Path) -> None:
    here, there = ManualWorkers(), ManualWorkers()
    with a_store(tmp_path) as store, ExitStack() as stack:
        one = stack.enter_context(a_scheduler(tmp_path, here, store))
        two = stack.enter_context(a_scheduler(tmp_path, there, store))
        for number, error in enumerate((AnnotationError("no axis"), EnvironmentProblem("the disk is full"))):
            one.submit(an_order(number))
            task = here.task(number)
            theirs = two.submit(an_order(number))
            until(lambda: two.statistics().elsewhere == 1)
            task.fail(error)
            if number == 1:
                there.task(0).succeed()
            ended = over(two, theirs)
            assert ended.state == ("failed", "done")[number]
            if number == 0:
                assert ended.problem is not None
                assert ended.problem["what"] == "no axis"


def test_jobs_of_another_server_are_seen_watched_and_cancelled(tmp_path: Path) -> None:
    here = ManualWorkers()
    with a_store(tmp_path) as store, ExitStack() as stack:
        one = stack.enter_context(a_scheduler(tmp_path, here, store))
        two = stack.enter_context(a_scheduler(tmp_path, ManualWorkers(), store))
        job = one.submit(an_order(0))
        task = here.task(0)
        heard: list[Job] = []
        two.watch(job.id, heard.append)
        assert task.progress is not None
        task.progress({"stage": "partition"})
        until(lambda: heard[-1].progress == {"stage": "partition"})
        assert heard[-1].state == "running"
        task.succeed()
        until(lambda: heard[-1].state == "done")
        assert two.job(job.id) == one.job(job.id)

        second = one.submit(an_order(1))
        task = here.task(1)
        cancelled = two.cancel(second.id)
        assert cancelled is not None
        assert cancelled.state == "cancelled"
        until(task.running.is_stopped)
        assert over(one, second).state == "cancelled"
        assert one.statistics().ended == {("partition", "done"): 1, ("partition", "cancelled"): 1}


def test_a_server_that_hangs_is_waited_for_as_long_as_work_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_threads, "_SLACK", -599.9)  # of the 600 s that orders may take by default
    other = Journal(tmp_path)
    assert other.claim(order_key(an_order()))
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        job = scheduler.submit(an_order())
        until(lambda: (now := scheduler.job(job.id)) and now.progress == {"stage": "elsewhere"})
        workers.task(0).succeed()
        assert over(scheduler, job).state == "done"
    other.close()


def test_a_result_comes_too_late_for_a_job_cancelled_elsewhere(tmp_path: Path) -> None:
    here = ManualWorkers()
    with a_store(tmp_path) as store, ExitStack() as stack:
        one = stack.enter_context(a_scheduler(tmp_path, here, store, pause=3600.0))
        two = stack.enter_context(a_scheduler(tmp_path, ManualWorkers(), store))
        job = one.submit(an_order())
        task = here.task(0)
        two.cancel(job.id)
        task.succeed()
        until(lambda: one.statistics().running == 0)
        assert one.job(job.id) == two.job(job.id)
        assert over(one, job).state == "cancelled"


def test_jobs_of_a_server_that_was_killed_are_taken_over_at_once(tmp_path: Path) -> None:
    workers, state = ManualWorkers(), tmp_path / "one"
    with a_store(state) as store, a_scheduler(state, workers, store) as scheduler:
        done = scheduler.submit(an_order(0))
        workers.task(0).succeed()
        over(scheduler, done)
        running, waiting = scheduler.submit(an_order(1)), scheduler.submit(an_order(2))
        workers.task(1)
        copy = copy_state(state, tmp_path / "two")
    later = ManualWorkers(count=2)
    with a_scheduler(copy, later) as scheduler:
        assert over(scheduler, done).entry is not None
        assert sorted(later.task(n).order.name for n in (0, 1)) == ["program-1", "program-2"]
        for task in later.tasks:
            task.succeed()
        assert {over(scheduler, job).state for job in (running, waiting)} == {"done"}
        assert scheduler.statistics().requeued == 2
        assert scheduler._jobs.journal.others() == []


def test_a_server_that_is_there_takes_over_as_well(tmp_path: Path) -> None:
    code = (
        "import sys, os; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from scheduler_support import *\n"
        "with a_scheduler(Path(sys.argv[1]), ManualWorkers()) as scheduler:\n"
        "    print(scheduler.submit(an_order()).id, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    workers = ManualWorkers()
    with a_store(tmp_path) as store, a_scheduler(tmp_path, workers, store) as scheduler:
        command = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            job_id = other.stdout.readline().strip()
            until(lambda: (job := scheduler.job(job_id)) and job.state == "running")
            assert workers.tasks == []
            other.kill()
        workers.task(0).succeed()
        until(lambda: (job := scheduler.job(job_id)) and job.state == "done")


def test_what_takes_three_servers_down_is_not_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "0"
    with a_store(state):
        pass
    for number in range(4):
        workers = ManualWorkers()
        with a_scheduler(state, workers) as scheduler:
            if number == 0:
                job, other = scheduler.submit(an_order(0)), scheduler.submit(an_order(1))
            if number < 3:
                assert workers.task(0).order.name == "program-0"
                state = copy_state(state, tmp_path / str(number + 1))
            else:
                failed = over(scheduler, job)
                assert failed.state == "failed"
                assert failed.problem is not None
                assert "the service stopped 3 times" in failed.problem["what"]
                workers.task(0).succeed()
                assert over(scheduler, other).state == "done"


def test_a_program_that_is_gone_after_a_restart_is_named(tmp_path: Path) -> None:
    state = tmp_path / "one"
    workers = ManualWorkers()
    with a_store(state) as store, a_scheduler(state, workers, store) as scheduler:
        scheduler.submit(an_order(0))
        workers.task(0)
        other = PROGRAM + b"\n"
        store.put_program(other)
        waiting = scheduler.submit(an_order(1, other))
        copy = copy_state(state, tmp_path / "two")
    shutil.rmtree(copy / "store" / "programs")
    with a_scheduler(copy, ManualWorkers(2)) as scheduler:
        failed = over(scheduler, waiting)
        assert failed.problem is not None
        assert (failed.problem["error"], failed.problem["fix"]) == ("InputError", "upload it, then submit again")


def test_a_server_is_dead_when_its_lock_is_free(tmp_path: Path) -> None:
    one, two = LiveServers(tmp_path), LiveServers(tmp_path)
    with two.take_over(one.name) as gone:
        assert not gone
    one.close()
    with two.take_over(one.name) as gone:
        assert gone
        third = LiveServers(tmp_path)
        with third.take_over(one.name) as twice:
            assert not twice
        third.close()
    assert [path.stem for path in tmp_path.iterdir()] == [two.name]
    two.close()
