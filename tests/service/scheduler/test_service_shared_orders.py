"""The scheduler with orders in pieces: who does them, who comes first, how they fail, and their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scheduler_support import PROGRAM, ManualWorkers, Task, a_scheduler, a_store, an_order, copy_state, over, until

from shardc.hlo.errors import EnvironmentProblem, ParseError, RunError
from shardc.launcher.executors.limits import TaskLimits
from shardc.service.jobs import Job
from shardc.service.scheduler import run_order
from shardc.service.scheduler.scheduler import Scheduler
from shardc.service.workers.package import program_file
from shardc.service.workers.pieces import OrderPart


def busy(workers: ManualWorkers) -> list[Task]:
    """What workers have just now."""
    return [task for task in list(workers.tasks) if not task.running.future.done()]


def names(tasks: list[Task]) -> list[str]:
    """Pieces by their text, orders by their name."""
    return sorted(task.part.piece or task.order.name for task in tasks)


def at_work(workers: ManualWorkers, *expected: str) -> dict[str, Task]:
    """The tasks with these names, as soon as workers have them and no others."""
    until(lambda: names(busy(workers)) == sorted(expected))
    time.sleep(0.03)  # for what comes too much
    found = {task.part.piece or task.order.name: task for task in busy(workers)}
    assert sorted(found) == sorted(expected)
    return found


@contextmanager
def in_pieces(folder: Path, count: int, *pieces: str, limits: TaskLimits | None = None) -> Iterator[Any]:
    """A scheduler with an order whose pieces are wanted, its workers, and the job."""
    workers = ManualWorkers(count)
    with a_scheduler(folder, workers, limits=limits) as scheduler:
        job = scheduler.submit(an_order())
        first = workers.task(0)
        assert first.part == OrderPart(workers=count)
        first.want(*pieces)
        yield scheduler, workers, job


def test_idle_hands_help_and_the_order_goes_on_with_what_they_found(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 3, *"abcde") as (scheduler, workers, job):
        found = at_work(workers, "a", "b", "c")
        assert all(list(task.files) == [program_file(task.order.program)] for task in found.values())
        assert all(task.files[program_file(task.order.program)] == PROGRAM for task in found.values())
        found["c"].find()
        found = at_work(workers, "a", "b", "d")
        for name in ("d", "b", "a"):
            found[name].find()
        at_work(workers, "e")["e"].find("oh")
        again = at_work(workers, "program-0")["program-0"]
        assert again.files == {}
        assert again.part.notes == "notes"
        assert {text: f.text for text, f in again.part.found.items()} == {**{n: n.upper() for n in "abcd"}, "e": "oh"}
        assert list(again.part.found) == [*"abcde"]
        assert again.part.found["a"].spent.seconds == {"trying": 2.0}
        assert again.part.spent.seconds == {"read": 1.0}
        again.want("f", notes="more", done=5, of=6)
        at_work(workers, "f")["f"].find()
        again = at_work(workers, "program-0")["program-0"]
        assert (again.part.notes, [*again.part.found]) == ("more", [*"abcdef"])
        again.succeed(b'{"all": 6}')
        done = over(scheduler, job)
        assert done.state == "done"
        counted = scheduler.statistics()
        assert (counted.tasks, counted.ended) == ({"partition": 1}, {("partition", "done"): 1})
        assert list(counted.seconds) == ["partition"]


def test_progress_grows_over_the_rounds(tmp_path: Path) -> None:
    heard: list[Job] = []
    with in_pieces(tmp_path, 2, *"abc") as (scheduler, workers, job):
        scheduler.watch(job.id, heard.append)
        for name in "abc":
            until(lambda name=name: name in names(busy(workers)))
            next(task for task in busy(workers) if task.part.piece == name).find()
        # a worker that knows less of earlier sweeps asks for what another one had in its cache
        at_work(workers, "program-0")["program-0"].want("d", done=1, of=4)
        at_work(workers, "d")["d"].find()
        at_work(workers, "program-0")["program-0"].succeed()
        over(scheduler, job)
        told = [(j.progress["stage"], j.progress["done"], j.progress["of"]) for j in heard if "done" in j.progress]
        assert [stage for stage, _, _ in told] == ["trying"] * len(told)
        assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
        assert told[-1] == ("trying", 4, 4)
        assert all(done <= of for _, done, of in told)


def test_who_comes_into_the_line_waits_for_one_piece_only(tmp_path: Path) -> None:
    """However many pieces wait; and the order in pieces keeps one worker, however many others come."""
    with in_pieces(tmp_path, 3, *"abcdefgh") as (scheduler, workers, job):
        found = at_work(workers, "a", "b", "c")
        others = [scheduler.submit(an_order(n)) for n in (1, 2, 3)]
        assert [j.position for j in others] == [1, 2, 3]
        for name in "abc":
            found[name].find()
        found = at_work(workers, "program-1", "program-2", "d")
        found["d"].find()
        found = at_work(workers, "program-1", "program-2", "e")
        found["program-1"].succeed()
        found = at_work(workers, "program-2", "program-3", "e")
        for name in ("program-2", "program-3"):
            found[name].succeed()
        assert {over(scheduler, j).state for j in others} == {"done"}
        found = at_work(workers, "e", "f", "g")
        for task in found.values():
            task.find()
        at_work(workers, "h")["h"].find()
        at_work(workers, "program-0")["program-0"].succeed()
        assert over(scheduler, job).state == "done"


def test_orders_in_pieces_share_the_workers_that_nobody_else_wants(tmp_path: Path) -> None:
    workers = ManualWorkers(4)

    def shares() -> list[int]:
        """How many workers each of the two orders has."""
        having = [task.order.name for task in busy(workers)]
        return [having.count(f"program-{n}") for n in (0, 1)]

    with a_scheduler(tmp_path, workers) as scheduler:
        scheduler.submit(an_order(0))
        workers.task(0).want(*(f"a{n}" for n in range(40)))
        until(lambda: shares() == [4, 0])
        scheduler.submit(an_order(1))
        while "program-1" not in names(busy(workers)):  # one of the four stays with its order
            busy(workers)[0].find()
            until(lambda: len(busy(workers)) == 4)
        next(task for task in busy(workers) if not task.part.piece).want(*(f"b{n}" for n in range(20)))
        until(lambda: sum(shares()) == 4)
        for _ in range(4):  # whoever is through goes where the fewest are
            busy(workers)[0].find()
            until(lambda: len(busy(workers)) == 4)
        for _ in range(8):
            assert shares() == [2, 2]
            busy(workers)[0].find()
            until(lambda: len(busy(workers)) == 4)


def test_a_piece_whose_worker_fails_is_tried_once_more(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 2, *"abc") as (scheduler, workers, job):
        found = at_work(workers, "a", "b")
        found["a"].fail(RunError("killed", where="there", fix="try again"))
        at_work(workers, "b", "c")["c"].find()
        at_work(workers, "a", "b")["a"].find()
        at_work(workers, "b")["b"].fail(RunError("killed"))
        at_work(workers, "b")["b"].fail(RunError("crashed", where="there"))
        again = at_work(workers, "program-0")["program-0"]
        assert {text: f.text for text, f in again.part.found.items()} == {"a": "A", "b": "", "c": "C"}
        problem = again.part.found["b"].problem
        assert problem is not None
        assert (problem["error"], problem["what"], problem["where"]) == ("RunError", "crashed", "there")
        again.fail(RunError("killed"))  # nor must it all be lost now
        at_work(workers, "program-0")["program-0"].succeed()
        assert over(scheduler, job).state == "done"


def test_a_machine_that_cannot_start_workers_fails_the_order(tmp_path: Path) -> None:
    """Unless it could the second time: a worker may be killed while it starts."""
    with in_pieces(tmp_path, 2, *"abc") as (scheduler, workers, job):
        at_work(workers, "a", "b")["a"].fail(EnvironmentProblem("a process does not start"))
        at_work(workers, "b", "c")["c"].find()
        at_work(workers, "a", "b")["a"].find()
        at_work(workers, "b")["b"].fail(RunError("killed"))
        at_work(workers, "b")["b"].fail(EnvironmentProblem("a process does not start"))
        failed = over(scheduler, job)
        assert failed.problem is not None
        assert (failed.problem["error"], failed.problem["what"]) == ("EnvironmentProblem", "a process does not start")


@pytest.mark.parametrize("error", [ParseError("an odd word"), ZeroDivisionError("oh")])
def test_what_is_no_fault_of_a_worker_fails_the_order_and_stops_the_others(tmp_path: Path, error: Exception) -> None:
    with in_pieces(tmp_path, 3, *"abcdefg") as (scheduler, workers, job):
        found = at_work(workers, "a", "b", "c")
        found["b"].fail(error)
        failed = over(scheduler, job)
        assert failed.problem is not None
        assert str(error) in failed.problem["what"]
        assert found["a"].running.is_stopped()
        assert found["c"].running.is_stopped()
        next_one = scheduler.submit(an_order(1))
        at_work(workers, "program-1")["program-1"].succeed()
        assert over(scheduler, next_one).state == "done"
        assert len(workers.tasks) == 5


def test_cancelling_stops_all_pieces_at_once(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 3, *"abcdefg") as (scheduler, workers, job):
        found = at_work(workers, "a", "b", "c")
        waiting = scheduler.submit(an_order(1))
        assert scheduler.cancel(job.id).state == "cancelled"
        assert all(task.running.is_stopped() for task in found.values())
        at_work(workers, "program-1")["program-1"].succeed()
        assert over(scheduler, waiting).state == "done"
        assert len(workers.tasks) == 5


def test_cancelling_while_the_order_goes_on_alone(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 2, "a") as (scheduler, workers, job):
        at_work(workers, "a")["a"].find()
        again = at_work(workers, "program-0")["program-0"]
        scheduler.cancel(job.id)
        assert again.running.is_stopped()
        same = scheduler.submit(an_order(0))
        at_work(workers, "program-0")["program-0"].succeed()
        assert over(scheduler, same).state == "done"
        assert len(workers.tasks) == 4


def test_a_job_that_joins_hears_how_far_it_is_and_keeps_the_order_alive(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 2, *"abc") as (scheduler, workers, job):
        at_work(workers, "a", "b")["a"].find()
        found = at_work(workers, "b", "c")
        second = scheduler.submit(an_order(0))
        scheduler.cancel(job.id)
        assert not any(task.running.is_stopped() for task in found.values())
        found["b"].find()
        until(lambda: scheduler.job(second.id).progress.get("done") == 2)
        found["c"].find()
        at_work(workers, "program-0")["program-0"].succeed()
        assert over(scheduler, second).state == "done"


def test_the_time_limit_is_for_the_whole_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(run_order, "time", SimpleNamespace(monotonic=lambda: now))
    with in_pieces(tmp_path, 2, *"abcd", limits=TaskLimits(seconds=60, memory_bytes=5)) as (scheduler, workers, job):
        assert workers.task(0).limits == TaskLimits(seconds=60, memory_bytes=5)
        found = at_work(workers, "a", "b")
        now += 20
        found["a"].find()
        found = at_work(workers, "b", "c")
        assert found["c"].limits == TaskLimits(seconds=40, memory_bytes=5)
        now += 40
        found["c"].fail(RunError("'order' exceeded its limit of 40 s"))
        failed = over(scheduler, job)
        assert failed.problem is not None
        assert failed.problem["what"].startswith("'order' exceeded its limit of 60 s")
        assert found["b"].running.is_stopped()
        assert len(workers.tasks) == 4


def test_closing_lets_all_hands_finish_what_runs(tmp_path: Path) -> None:
    with in_pieces(tmp_path, 3, *"abcde") as (scheduler, workers, job):
        heard: list[str] = []
        scheduler.watch(job.id, lambda job: heard.append(job.state))
        found = at_work(workers, "a", "b", "c")
        scheduler.submit(an_order(1))
        closing = threading.Thread(target=scheduler.close, args=(60,))
        closing.start()
        until(lambda: scheduler._jobs.closing)
        for task in found.values():
            task.find()
        for task in at_work(workers, "d", "e").values():
            task.find()
        at_work(workers, "program-0")["program-0"].want("f", "g")
        for task in at_work(workers, "f", "g").values():
            task.find()
        at_work(workers, "program-0")["program-0"].succeed()
        closing.join(30)
        assert not closing.is_alive()
        assert heard[-1] == "done"
        assert not any(thread.name.startswith("shardc-scheduler") for thread in threading.enumerate())


def test_closing_without_grace_requeues_it_and_it_starts_again(tmp_path: Path) -> None:
    workers = ManualWorkers(3)
    with a_store(tmp_path) as store:
        with a_scheduler(tmp_path, workers, store) as scheduler:
            job = scheduler.submit(an_order())
            workers.task(0).want(*"abcde")
            found = at_work(workers, "a", "b", "c")
            scheduler.close(0)
            assert all(task.running.is_stopped() for task in found.values())
        workers = ManualWorkers(2)
        with a_scheduler(tmp_path, workers, store) as scheduler:
            begin_again(scheduler, workers, job)


def test_another_server_that_takes_it_over_starts_again(tmp_path: Path) -> None:
    with in_pieces(tmp_path / "one", 2, *"abc") as (_, workers, job):
        at_work(workers, "a", "b")["a"].find()
        at_work(workers, "b", "c")
        other, later = copy_state(tmp_path / "one", tmp_path / "two"), ManualWorkers(2)
        with a_scheduler(other, later) as scheduler:
            begin_again(scheduler, later, job)


def begin_again(scheduler: Scheduler, workers: ManualWorkers, job: Job) -> None:
    first = workers.task(0)
    assert first.part == OrderPart(workers=2)
    assert list(first.files) == [program_file(first.order.program)]
    first.want("a")
    at_work(workers, "a")["a"].find()
    at_work(workers, "program-0")["program-0"].succeed()
    assert over(scheduler, job).state == "done"


def test_answers_that_make_no_sense_fail_their_order(tmp_path: Path) -> None:
    workers = ManualWorkers(2)
    with a_scheduler(tmp_path, workers) as scheduler:
        odd = scheduler.submit(an_order())
        task = workers.task(0)
        task.order = an_order(program=b"another")
        task.want("a")
        assert "a piece of another order" in str(over(scheduler, odd).problem)
        garbled = scheduler.submit(an_order(1))
        at_work(workers, "program-1")["program-1"].want("a")
        at_work(workers, "a")["a"].succeed()
        assert "internal error of the service" in str(over(scheduler, garbled).problem)
        fine = scheduler.submit(an_order(2))
        at_work(workers, "program-2")["program-2"].succeed()
        assert over(scheduler, fine).state == "done"
