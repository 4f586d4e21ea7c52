"""Tasks on child processes of this one, the default: a thread waits for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from shardc.launcher.executors.children import Children
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Kind, Running, Unfinished, Workers, outcome_of
from shardc.launcher.executors.tasks import Progress

__all__ = ["on_processes"]


class _Processes:
    kind: Kind = "processes"

    def __init__(self, count: int, children: Children, threads: ThreadPoolExecutor) -> None:
        self.count, self._children, self._threads = count, children, threads
        self.unfinished = Unfinished()

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None) -> Running:
        running = Running(task)
        self.unfinished.add(running)
        call = partial(self._children.call, task, payload, limits, progress, running.is_stopped)
        running.follow(self._threads.submit(outcome_of, call))
        return running


@contextmanager
def on_processes(
    count: int, environment: Mapping[str, str], tasks: Mapping[str, str], prepare: Sequence[str]
) -> Iterator[Workers]:
    """``count`` children; they end with the block, and what they do then is stopped."""
    children = Children(environment, tasks, prepare)
    threads = ThreadPoolExecutor(count, thread_name_prefix="shardc-worker")
    processes = _Processes(count, children, threads)
    try:
        if prepare:
            children.start(count)
        yield processes
    finally:
        processes.unfinished.stop()
        children.close()
        threads.shutdown(wait=True, cancel_futures=True)
