"""A job's changes for coroutines: the scheduler tells of them in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from shardc.service.api.context import ApiContext
from shardc.service.jobs import Job

__all__ = ["JobUpdates", "follow"]


class JobUpdates:
    """The newest state of one job. States between two calls of `next_change` are skipped, the last one never is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> None:
        self._loop, self._ending = loop, ending
        self._newest: Job | None = None
        self._changed = asyncio.Event()

    def push(self, job: Job) -> None:
        """Deliver a state; any thread may call this."""
        with suppress(RuntimeError):  # the loop has ended, and so has whoever waited
            self._loop.call_soon_threadsafe(self._take, job)

    def _take(self, job: Job) -> None:
        self._newest = job
        self._changed.set()

    async def next_change(self, seconds: float | None = None) -> Job | None:
        """The job when it has changed since the last call; None after ``seconds`` or when the server ends."""
        waiting = [asyncio.ensure_future(e.wait()) for e in (self._changed, self._ending)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if not self._changed.is_set():
            return None
        self._changed.clear()
        return self._newest


@asynccontextmanager
async def follow(context: ApiContext, job_id: str) -> AsyncIterator[JobUpdates]:
    """Follow a job within the block; the first change is its present state. Raises `NoSuchJob`."""
    loop = asyncio.get_running_loop()
    updates = JobUpdates(loop, context.ending.over)
    begun = loop.run_in_executor(None, context.scheduler.watch, job_id, updates.push)

    def stop(begun: asyncio.Future[Callable[[], None]]) -> None:
        if begun.exception() is None:
            loop.run_in_executor(None, begun.result())

    try:
        await asyncio.shield(begun)
        yield updates
    finally:  # also when this task was cancelled while the scheduler was still asked
        begun.add_done_callback(stop)
