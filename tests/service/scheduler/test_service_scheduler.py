"""The scheduler: jobs through the queue, single flight, cancelling, watching, bounds, and its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from scheduler_support import ManualWorkers, Task, a_scheduler, a_store, an_order, over, until

from shardc.hlo.errors import AnnotationError
from shardc.service.jobs import Job
from shardc.service.orders import order_key
from shardc.service.scheduler.refusals import Closing, MissingPrograms, NoSuchJob, QueueFull


def test_a_job_is_queued_runs_and_ends_with_its_entry(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_store(tmp_path) as store, a_scheduler(tmp_path, workers, store) as scheduler:
        heard: list[Job] = []
        job = scheduler.submit(an_order())
        assert (job.state, job.kind, job.name, job.key) == ("queued", "partition", "program-0", order_key(an_order()))
        end = scheduler.watch(job.id, heard.append)
        task = workers.task(0)
        assert task.order == an_order()
        assert task.progress is not None
        task.progress({"stage": "propagate"})
        task.succeed(b'{"devices": 1}')
        done = over(scheduler, job)
        end()
        assert done.state == "done"
        assert not done.cached
        assert done.entry is not None
        assert done.created <= done.started <= done.finished
        assert store.read(done.key, "report.json") == b'{"devices": 1}'
        assert [j.state for j in heard][-1] == "done"
        assert {"stage": "propagate"} in [j.progress for j in heard]
        assert scheduler.jobs() == [done]


def test_what_is_in_the_store_needs_no_worker(tmp_path: Path) -> None:
    workers = ManualWorkers(answer=Task.succeed)
    with a_scheduler(tmp_path, workers) as scheduler:
        first = over(scheduler, scheduler.submit(an_order()))
        second = scheduler.submit(an_order())
        assert second.over
        assert second.cached
        assert second.entry == first.entry
        assert second.id != first.id
        assert scheduler.job(second.id) == second
        assert scheduler.jobs() == [second, first]
        assert len(workers.tasks) == 1
        assert scheduler.statistics().cached == {"partition": 1}


def test_equal_orders_under_way_are_made_once(tmp_path: Path) -> None:
    workers = ManualWorkers(count=4)
    with a_scheduler(tmp_path, workers) as scheduler:
        jobs = [scheduler.submit(an_order()) for _ in range(3)]
        task = workers.task(0)
        jobs += [scheduler.submit(an_order()) for _ in range(3)]
        assert scheduler.job(jobs[-1].id).state == "running"  # type: ignore[union-attr]
        task.succeed()
        ended = [over(scheduler, job) for job in jobs]
        assert {job.state for job in ended} == {"done"}
        assert len(workers.tasks) == 1
        counted = scheduler.statistics()
        assert counted.tasks == {"partition": 1}
        assert counted.joined == 5
        assert counted.ended == {("partition", "done"): 6}


def test_an_error_is_for_all_who_wait_and_is_not_kept(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        jobs = [scheduler.submit(an_order()) for _ in range(2)]
        workers.task(0).fail(AnnotationError("unknown axis 'modle'", where="w1", fix="use model"))
        for job in jobs:
            failed = over(scheduler, job)
            assert failed.state == "failed"
            assert failed.entry is None
            assert failed.problem is not None
            assert (failed.problem["error"], failed.problem["where"]) == ("AnnotationError", "w1")
        again = scheduler.submit(an_order())
        workers.task(1).succeed()
        assert over(scheduler, again).state == "done"


def test_first_come_first_served_with_positions(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        first = scheduler.submit(an_order(0))
        workers.task(0)
        waiting = [scheduler.submit(an_order(n)) for n in (1, 2, 3)]
        assert [job.position for job in waiting] == [1, 2, 3]
        assert [job.position for job in scheduler.jobs()] == [3, 2, 1, 0]
        places: list[int] = []
        scheduler.watch(waiting[2].id, lambda job: places.append(job.position))
        for number in range(4):
            workers.task(number).succeed()
        for job in (first, *waiting):
            assert over(scheduler, job).state == "done"
        assert [task.order.name for task in workers.tasks] == [f"program-{n}" for n in range(4)]
        assert [p for n, p in enumerate(places) if p not in places[:n]] == [3, 2, 1, 0]


def test_cancelling_stops_the_worker_only_when_nobody_else_waits(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        one, two = scheduler.submit(an_order()), scheduler.submit(an_order())
        task = workers.task(0)
        cancelled = scheduler.cancel(one.id)
        assert cancelled is not None
        assert (cancelled.state, task.running.is_stopped()) == ("cancelled", False)
        assert scheduler.job(two.id).state == "running"  # type: ignore[union-attr]
        scheduler.cancel(two.id)
        assert task.running.is_stopped()
        assert scheduler.cancel(two.id) == scheduler.job(two.id)
        third = scheduler.submit(an_order())
        workers.task(1).succeed()
        assert over(scheduler, third).state == "done"
        assert scheduler.statistics().ended == {("partition", "cancelled"): 2, ("partition", "done"): 1}


def test_a_cancelled_job_leaves_the_line(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        jobs = [scheduler.submit(an_order(n)) for n in range(3)]
        workers.task(0)
        scheduler.cancel(jobs[1].id)
        assert scheduler.job(jobs[2].id).position == 1  # type: ignore[union-attr]
        workers.tasks[0].succeed()
        workers.task(1).succeed()
        over(scheduler, jobs[2])
        assert [task.order.name for task in workers.tasks] == ["program-0", "program-2"]


def test_programs_that_are_not_there_are_named(tmp_path: Path) -> None:
    with a_scheduler(tmp_path, ManualWorkers()) as scheduler:
        order = an_order(program=b"never uploaded")
        assert scheduler.missing_programs(order) == [order.program]
        with pytest.raises(MissingPrograms) as caught:
            scheduler.submit(order)
        assert caught.value.missing == (order.program,)
        assert scheduler.jobs() == []


def test_the_queue_has_a_bound(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers, queue=2) as scheduler:
        jobs = [scheduler.submit(an_order(n)) for n in range(3)]
        with pytest.raises(QueueFull) as caught:
            scheduler.submit(an_order(3))
        assert caught.value.retry_after >= 1
        scheduler.cancel(jobs[2].id)
        scheduler.submit(an_order(3))


def test_equal_orders_share_a_place_in_the_queue(tmp_path: Path) -> None:
    with a_scheduler(tmp_path, ManualWorkers(), queue=1) as scheduler:
        for number in (0, 0, 0, 0, 1, 1, 1, 0):
            scheduler.submit(an_order(number))
        assert scheduler.statistics().joined == 6
        with pytest.raises(QueueFull, match="1 order wait"):
            scheduler.submit(an_order(2))


def test_unknown_jobs(tmp_path: Path) -> None:
    with a_scheduler(tmp_path, ManualWorkers()) as scheduler:
        assert scheduler.job("nothing") is None
        assert scheduler.cancel("nothing") is None
        with pytest.raises(NoSuchJob):
            scheduler.watch("nothing", print)


def test_a_watcher_that_raises_is_not_called_again_and_harms_nobody(tmp_path: Path) -> None:
    workers = ManualWorkers()
    calls = []

    def bad(job: Job) -> None:
        calls.append(job)
        raise RuntimeError("the loop is closed")

    with a_scheduler(tmp_path, workers) as scheduler:
        job = scheduler.submit(an_order())
        scheduler.watch(job.id, bad)
        workers.task(0).succeed()
        assert over(scheduler, job).state == "done"
        assert len(calls) == 1


def test_a_fault_of_the_service_fails_the_job_and_not_the_scheduler(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_scheduler(tmp_path, workers) as scheduler:
        job = scheduler.submit(an_order())
        workers.task(0).fail(ZeroDivisionError("oh"))
        failed = over(scheduler, job)
        assert failed.problem is not None
        assert "internal error of the service: ZeroDivisionError: oh" in failed.problem["what"]
        garbled = scheduler.submit(an_order(1))
        workers.task(1).running.future.set_result(b"\xff" * 100)
        assert "damaged" in over(scheduler, garbled).problem["what"]  # type: ignore[index]


def test_closing_lets_what_runs_end_and_keeps_the_rest(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_store(tmp_path) as store:
        with a_scheduler(tmp_path, workers, store) as scheduler:
            running, waiting = scheduler.submit(an_order(0)), scheduler.submit(an_order(1))
            heard: list[str] = []
            scheduler.watch(running.id, lambda job: heard.append(job.state))
            workers.task(0)
            closing = threading.Thread(target=scheduler.close, args=(60,))
            closing.start()
            with pytest.raises(Closing):
                until(lambda: scheduler.submit(an_order(2)) and None)
            workers.tasks[0].succeed()
            closing.join(30)
            assert not closing.is_alive()
            assert heard[-1] == "done"
            assert len(workers.tasks) == 1
        with a_scheduler(tmp_path, workers, store) as scheduler:
            assert scheduler.job(running.id).state == "done"  # type: ignore[union-attr]
            workers.task(1).succeed()
            assert over(scheduler, waiting).state == "done"
            assert scheduler.statistics().requeued == 1


def test_closing_without_grace_requeues_what_runs(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_store(tmp_path) as store:
        with a_scheduler(tmp_path, workers, store) as scheduler:
            job = scheduler.submit(an_order())
            heard: list[str] = []
            workers.task(0)
            scheduler.watch(job.id, lambda job: heard.append(job.state))
            closing = threading.Thread(target=scheduler.close, args=(600,))
            closing.start()
            until(lambda: scheduler._jobs.closing)
            scheduler.close(0)
            closing.join(30)
            assert not closing.is_alive()
            assert workers.tasks[0].running.is_stopped()
            assert heard[-1] == "queued"
            with pytest.raises(Closing):
                scheduler.jobs()
        with a_scheduler(tmp_path, workers, store) as scheduler:
            workers.task(1).succeed()
            assert over(scheduler, job).state == "done"
