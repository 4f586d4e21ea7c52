"""The desk: jobs through the line, single flight, cancelling, watching, bounds, and its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from desk_parts import HandWorkers, Task, a_desk, a_store, an_order, over, until

from shardc.hlo.errors import AnnotationError
from shardc.service.jobs import Job
from shardc.service.orders import order_key
from shardc.service.scheduler.refusals import Closing, MissingPrograms, NoSuchJob, QueueFull


def test_a_job_is_queued_runs_and_ends_with_its_entry(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_store(tmp_path) as store, a_desk(tmp_path, workers, store) as desk:
        heard: list[Job] = []
        job = desk.submit(an_order())
        assert (job.state, job.kind, job.name, job.key) == ("queued", "partition", "program-0", order_key(an_order()))
        end = desk.watch(job.id, heard.append)
        task = workers.task(0)
        assert task.order == an_order()
        assert task.progress is not None
        task.progress({"stage": "propagate"})
        task.succeed(b'{"devices": 1}')
        done = over(desk, job)
        end()
        assert done.state == "done"
        assert not done.cached
        assert done.entry is not None
        assert done.created <= done.started <= done.finished
        assert store.read(done.key, "report.json") == b'{"devices": 1}'
        assert [j.state for j in heard][-1] == "done"
        assert {"stage": "propagate"} in [j.progress for j in heard]
        assert desk.jobs() == [done]


def test_what_is_in_the_store_needs_no_worker(tmp_path: Path) -> None:
    workers = HandWorkers(answer=Task.succeed)
    with a_desk(tmp_path, workers) as desk:
        first = over(desk, desk.submit(an_order()))
        second = desk.submit(an_order())
        assert second.over
        assert second.cached
        assert second.entry == first.entry
        assert second.id != first.id
        assert desk.job(second.id) == second
        assert desk.jobs() == [second, first]
        assert len(workers.tasks) == 1
        assert desk.statistics().cached == {"partition": 1}


def test_equal_orders_under_way_are_made_once(tmp_path: Path) -> None:
    workers = HandWorkers(count=4)
    with a_desk(tmp_path, workers) as desk:
        jobs = [desk.submit(an_order()) for _ in range(3)]
        task = workers.task(0)
        jobs += [desk.submit(an_order()) for _ in range(3)]
        assert desk.job(jobs[-1].id).state == "running"  # type: ignore[union-attr]
        task.succeed()
        ended = [over(desk, job) for job in jobs]
        assert {job.state for job in ended} == {"done"}
        assert len(workers.tasks) == 1
        counted = desk.statistics()
        assert counted.makings == {"partition": 1}
        assert counted.joined == 5
        assert counted.ended == {("partition", "done"): 6}


def test_an_error_is_for_all_who_wait_and_is_not_kept(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers) as desk:
        jobs = [desk.submit(an_order()) for _ in range(2)]
        workers.task(0).fail(AnnotationError("unknown axis 'modle'", where="w1", fix="use model"))
        for job in jobs:
            failed = over(desk, job)
            assert failed.state == "failed"
            assert failed.entry is None
            assert failed.problem is not None
            assert (failed.problem["error"], failed.problem["where"]) == ("AnnotationError", "w1")
        again = desk.submit(an_order())
        workers.task(1).succeed()
        assert over(desk, again).state == "done"


def test_first_come_first_served_with_positions(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers) as desk:
        first = desk.submit(an_order(0))
        workers.task(0)
        waiting = [desk.submit(an_order(n)) for n in (1, 2, 3)]
        assert [job.position for job in waiting] == [1, 2, 3]
        assert [job.position for job in desk.jobs()] == [3, 2, 1, 0]
        places: list[int] = []
        desk.watch(waiting[2].id, lambda job: places.append(job.position))
        for number in range(4):
            workers.task(number).succeed()
        for job in (first, *waiting):
            assert over(desk, job).state == "done"
        assert [task.order.name for task in workers.tasks] == [f"program-{n}" for n in range(4)]
        assert [p for n, p in enumerate(places) if p not in places[:n]] == [3, 2, 1, 0]


def test_cancelling_stops_the_worker_only_when_nobody_else_waits(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers) as desk:
        one, two = desk.submit(an_order()), desk.submit(an_order())
        task = workers.task(0)
        cancelled = desk.cancel(one.id)
        assert cancelled is not None
        assert (cancelled.state, task.running.stopping()) == ("cancelled", False)
        assert desk.job(two.id).state == "running"  # type: ignore[union-attr]
        desk.cancel(two.id)
        assert task.running.stopping()
        assert desk.cancel(two.id) == desk.job(two.id)
        third = desk.submit(an_order())
        workers.task(1).succeed()
        assert over(desk, third).state == "done"
        assert desk.statistics().ended == {("partition", "cancelled"): 2, ("partition", "done"): 1}


def test_a_cancelled_job_leaves_the_line(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers) as desk:
        jobs = [desk.submit(an_order(n)) for n in range(3)]
        workers.task(0)
        desk.cancel(jobs[1].id)
        assert desk.job(jobs[2].id).position == 1  # type: ignore[union-attr]
        workers.tasks[0].succeed()
        workers.task(1).succeed()
        over(desk, jobs[2])
        assert [task.order.name for task in workers.tasks] == ["program-0", "program-2"]


def test_programs_that_are_not_there_are_named(tmp_path: Path) -> None:
    with a_desk(tmp_path, HandWorkers()) as desk:
        order = an_order(program=b"never uploaded")
        assert desk.missing(order) == [order.program]
        with pytest.raises(MissingPrograms) as caught:
            desk.submit(order)
        assert caught.value.missing == (order.program,)
        assert desk.jobs() == []


def test_the_queue_has_a_bound(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers, queue=2) as desk:
        jobs = [desk.submit(an_order(n)) for n in range(3)]
        for order in (an_order(3), an_order(0)):
            with pytest.raises(QueueFull) as caught:
                desk.submit(order)
            assert caught.value.retry_after >= 1
        desk.cancel(jobs[2].id)
        desk.submit(an_order(3))


def test_unknown_jobs(tmp_path: Path) -> None:
    with a_desk(tmp_path, HandWorkers()) as desk:
        assert desk.job("nothing") is None
        assert desk.cancel("nothing") is None
        with pytest.raises(NoSuchJob):
            desk.watch("nothing", print)


def test_a_watcher_that_raises_is_not_called_again_and_harms_nobody(tmp_path: Path) -> None:
    workers = HandWorkers()
    calls = []

    def bad(job: Job) -> None:
        calls.append(job)
        raise RuntimeError("the loop is closed")

    with a_desk(tmp_path, workers) as desk:
        job = desk.submit(an_order())
        desk.watch(job.id, bad)
        workers.task(0).succeed()
        assert over(desk, job).state == "done"
        assert len(calls) == 1


def test_a_fault_of_the_service_fails_the_job_and_not_the_desk(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_desk(tmp_path, workers) as desk:
        job = desk.submit(an_order())
        workers.task(0).fail(ZeroDivisionError("oh"))
        failed = over(desk, job)
        assert failed.problem is not None
        assert "a fault of the service: ZeroDivisionError: oh" in failed.problem["what"]
        garbled = desk.submit(an_order(1))
        workers.task(1).running.future.set_result(b"\xff" * 100)
        assert "damaged" in over(desk, garbled).problem["what"]  # type: ignore[index]


def test_closing_lets_what_runs_end_and_keeps_the_rest(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_store(tmp_path) as store:
        with a_desk(tmp_path, workers, store) as desk:
            running, waiting = desk.submit(an_order(0)), desk.submit(an_order(1))
            heard: list[str] = []
            desk.watch(running.id, lambda job: heard.append(job.state))
            workers.task(0)
            closing = threading.Thread(target=desk.close, args=(60,))
            closing.start()
            with pytest.raises(Closing):
                until(lambda: desk.submit(an_order(2)) and None)
            workers.tasks[0].succeed()
            closing.join(30)
            assert not closing.is_alive()
            assert heard[-1] == "done"
            assert len(workers.tasks) == 1
        with a_desk(tmp_path, workers, store) as desk:
            assert desk.job(running.id).state == "done"  # type: ignore[union-attr]
            workers.task(1).succeed()
            assert over(desk, waiting).state == "done"
            assert desk.statistics().requeued == 1


def test_closing_without_grace_requeues_what_runs(tmp_path: Path) -> None:
    workers = HandWorkers()
    with a_store(tmp_path) as store:
        with a_desk(tmp_path, workers, store) as desk:
            job = desk.submit(an_order())
            heard: list[str] = []
            workers.task(0)
            desk.watch(job.id, lambda job: heard.append(job.state))
            closing = threading.Thread(target=desk.close, args=(600,))
            closing.start()
            until(lambda: desk._jobs.closing)
            desk.close(0)
            closing.join(30)
            assert not closing.is_alive()
            assert workers.tasks[0].running.stopping()
            assert heard[-1] == "queued"
            with pytest.raises(Closing):
                desk.jobs()
        with a_desk(tmp_path, workers, store) as desk:
            workers.task(1).succeed()
            assert over(desk, job).state == "done"
