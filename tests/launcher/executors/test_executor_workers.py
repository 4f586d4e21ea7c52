"""Workers of this process: tasks side by side, stopping them, and the end of the block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from shardc.hlo.errors import InputError, ParseError, RunError
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.open_executor import Workers, open_executor
from tests.launcher.executors.executor_tasks import BAD_TASKS

LIMITS = TaskLimits(seconds=60)


@pytest.fixture
def workers() -> Iterator[Workers]:
    with open_executor(2, tasks=BAD_TASKS) as found:
        assert found is not None
        yield found


def test_tasks_run_side_by_side(workers: Workers) -> None:
    assert (workers.count, workers.kind) == (2, "processes")
    asleep = [threading.Event(), threading.Event()]
    both = [workers.submit("sleep", b"600", LIMITS, lambda news, e=e: e.set()) for e in asleep]
    assert all(e.wait(60) for e in asleep)  # neither waits for the other
    third = workers.submit("echo", b"third", LIMITS)
    assert not wait([third.future], timeout=0.2).done
    both[0].stop()
    assert third.future.result(60) == b"third"
    both[1].stop()
    for running in both:
        with pytest.raises(RunError, match="'sleep' was stopped"):
            running.future.result(60)


def test_what_was_not_begun_is_stopped_at_once(workers: Workers) -> None:
    long = [workers.submit("sleep", b"600", LIMITS) for _ in range(2)]
    waiting = workers.submit("echo", b"", LIMITS)
    waiting.stop()
    waiting.stop()
    with pytest.raises(RunError, match="'echo' was stopped"):
        waiting.future.result(0)
    for running in long:
        running.stop()


def test_stopping_what_is_over_changes_nothing(workers: Workers) -> None:
    running = workers.submit("echo", b"over", LIMITS)
    assert running.future.result(60) == b"over"
    running.stop()
    assert running.future.result(0) == b"over"


def test_errors_come_with_the_future(workers: Workers) -> None:
    running = [workers.submit(task, b"fix", LIMITS) for task in ("refuse", "leave", "abort", "echo")]
    kinds = [type(r.future.exception(60)) for r in running]
    assert kinds == [ParseError, RunError, RunError, type(None)]


def test_leaving_the_block_stops_everything() -> None:
    begun = threading.Event()
    start = time.monotonic()
    with open_executor(1, tasks=BAD_TASKS) as workers:
        assert workers is not None
        first = workers.submit("for_ever", b"", TaskLimits(seconds=600), lambda news: begun.set())
        second = workers.submit("echo", b"", LIMITS)
        assert begun.wait(60)
    for running in (first, second):
        with pytest.raises(RunError, match="was stopped"):
            running.future.result(0)
    assert time.monotonic() - start < 60


def test_children_can_be_ready_before_they_are_asked() -> None:
    with open_executor(2, tasks=BAD_TASKS, prepare=("echo", "unknown")) as workers:
        assert workers is not None
        assert workers.submit("echo", b"1", LIMITS).future.result(60) == b"1"
        with pytest.raises(InputError, match="no task 'unknown'"):
            workers.submit("unknown", b"", LIMITS).future.result(60)


def test_a_number_of_workers() -> None:
    with pytest.raises(InputError, match="workers is -1"):
        open_executor(-1)
    with open_executor() as workers:
        assert workers is not None
        assert workers.count >= 1
