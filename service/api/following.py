"""A job as it changes, for coroutines: the desk tells of changes in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from shardc.service.api.parts import Parts
from shardc.service.jobs import Job

__all__ = ["Following", "follow"]


class Following:
    """The newest state of one job. What changes faster than it is asked for is left out, but for the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> None:
        self._loop, self._ending = loop, ending
        self._newest: Job | None = None
        self._changed = asyncio.Event()

    def hear(self, job: Job) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop has ended, and so has whoever waited
            self._loop.call_soon_threadsafe(self._take, job)

    def _take(self, job: Job) -> None:
        self._newest = job
        self._changed.set()

    async def change(self, seconds: float | None = None) -> Job | None:
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
async def follow(parts: Parts, job_id: str) -> AsyncIterator[Following]:
    """Hear of a job's changes within the block; the first is the job as it is. `NoSuchJob` for one that is unknown."""
    loop = asyncio.get_running_loop()
    following = Following(loop, parts.ending.over)
    begun = loop.run_in_executor(None, parts.desk.watch, job_id, following.hear)

    def stop(begun: asyncio.Future[Callable[[], None]]) -> None:
        if begun.exception() is None:
            loop.run_in_executor(None, begun.result())

    try:
        await asyncio.shield(begun)
        yield following
    finally:  # also when this task was cancelled while the desk was still asked
        begun.add_done_callback(stop)
