"""The emulated device's work: what waits for what, and in which of the permitted orders it is done.

Real streams run side by side. A program that forgets to wait for an event works there as long as it is lucky; here
the work between two looks at the results is done one by one, in an order drawn by a seed from all orders that streams
and events permit, so that some seed shows the mistake.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable

from shardc.native.gpu.problems import GpuFault

__all__ = ["Work", "WorkQueue"]


class Work:
    """Something to do once all of ``after`` is done."""

    __slots__ = ("after", "done", "followers", "missing", "run")

    def __init__(self, run: Callable[[], object] | None, after: tuple[Work, ...] = ()) -> None:
        self.run = run
        self.after = after
        self.followers: list[Work] = []
        self.missing = 0
        self.done = False


class WorkQueue:
    """Work under way. ``seed``: draws the order; None: the order in which it was put in.

    Example: ``first = queue.add(f); queue.add(g, [first]); queue.finish()``.
    """

    #: Work that may wait here until somebody looks; beyond, some of it is done at once.
    LIMIT = 4096

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._ready: list[tuple[float, int, Work]] = []
        self._number = 0
        self._waiting = 0
        self._failure: GpuFault | None = None
        self._raised: list[BaseException] = []

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not self._ready and not self._waiting

    @property
    def failed(self) -> bool:
        """Some work went wrong; no more is done."""
        return self._failure is not None

    def add(self, run: Callable[[], object] | None, after: Iterable[Work] = ()) -> Work:
        """Work that waits for ``after``, which is in this queue."""
        work = Work(run)
        for other in dict.fromkeys(after):
            if not other.done:
                other.followers.append(work)
                work.missing += 1
        if work.missing:
            self._waiting += 1
        else:
            self._offer(work)
        if self._waiting + len(self._ready) > self.LIMIT and self._failure is None:
            self._step()
        return work

    def called(self, function: Callable[[], None]) -> Callable[[], None]:
        """``function`` of the host: what it raises is raised where somebody waits; the work goes on."""

        def run() -> None:
            try:
                function()
            except BaseException as error:
                self._raised.append(error)

        return run

    def finish(self, last: Work | None = None) -> None:
        """Work until ``last`` is done (None: everything). A fault is raised now and whenever somebody waits again."""
        while self._failure is None and self._ready and not (last is not None and last.done):
            self._step()
        if self._failure is not None:
            raise self._failure
        if self._raised:
            error, self._raised = self._raised[0], []
            raise error

    def fail(self, failure: GpuFault) -> None:
        """The device is lost: what is under way never happens."""
        self._failure = failure
        self._ready.clear()
        self._waiting = 0

    def _offer(self, work: Work) -> None:
        rank = 0.0 if self._random is None else self._random.random()
        heapq.heappush(self._ready, (rank, self._number, work))
        self._number += 1

    def _step(self) -> None:
        work = heapq.heappop(self._ready)[2]
        try:
            if work.run is not None:
                work.run()
        except GpuFault as failure:
            self.fail(failure)
            return
        work.done = True
        for follower in work.followers:
            follower.missing -= 1
            if not follower.missing:
                self._waiting -= 1
                self._offer(follower)
        work.followers.clear()
        work.run = None
