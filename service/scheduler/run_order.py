"""One order on the workers: as a whole, or in pieces on all workers that are free."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from shardc.launcher.executors.failures import stopped_error, timeout_error
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Workers
from shardc.launcher.executors.tasks import Progress
from shardc.service.scheduler.open_jobs import OpenJobs
from shardc.service.scheduler.queue import TaskInFlight
from shardc.service.scheduler.run_task import payload_of
from shardc.service.scheduler.shared_orders import TRANSIENT_ERRORS, SharedOrder
from shardc.service.store.store import Store
from shardc.service.workers.package import unpack
from shardc.service.workers.pieces import PIECE_FILE, OrderPart, OrderPiece, PieceResult, Spent, WantedPieces

__all__ = ["OrderRunner"]


class OrderRunner:
    """Has orders carried out by ``workers``, each within ``limits``: seconds of the whole order, however many workers
    it has, and memory of each process."""

    def __init__(self, jobs: OpenJobs, store: Store, workers: Workers, limits: TaskLimits) -> None:
        self._jobs, self._store, self._workers, self._limits = jobs, store, workers, limits

    def run(self, task: TaskInFlight, order: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The files that the text ``order`` asks for, and facts. Raises what its task raises.

        Where the task asks for pieces, this thread does one after the other, and so does every worker thread that
        finds the queue empty.
        """
        shared = SharedOrder(task, order, time.monotonic() + self._limits.seconds)
        part = OrderPart(workers=self._workers.count)
        hear = partial(self._jobs.note_progress, task)
        files, facts = unpack(self._ask(shared, part, task.programs, self._limits, hear))
        wanted = WantedPieces.read_from(files)
        if wanted is None:
            return files, facts
        with self._jobs.share_pieces(shared):
            while wanted is not None:
                found = {**part.found, **self._run_pieces(shared, wanted)}
                part = OrderPart(notes=wanted.notes, found=found, spent=wanted.spent)
                files, facts = unpack(self._ask_again(shared, part))
                wanted = WantedPieces.read_from(files)
        return files, facts

    def run_piece(self, shared: SharedOrder, piece: OrderPiece) -> None:
        """Have a ``piece`` done that was taken, and record its result in ``shared``."""
        task = shared.task
        try:
            answer = self._ask(shared, OrderPart(piece=piece.text), [piece.program], self._limits_left(shared))
            files, facts = unpack(answer)
            spent = Spent(facts["seconds"], tuple(facts["warnings"]))
            put = partial(shared.put, piece, PieceResult(files[PIECE_FILE].decode(), spent=spent))
        except Exception as e:
            put = partial(shared.fail, piece, e)
        with self._jobs.changed:
            if time.monotonic() >= shared.until:
                shared.give_up(timeout_error("order", self._limits))
            else:
                put()
                self._jobs.note_progress(task, shared.progress)
            others = list(task.running) if shared.error is not None else []
            self._jobs.changed.notify_all()
        for running in others:
            running.stop()

    def _run_pieces(self, shared: SharedOrder, wanted: WantedPieces) -> dict[str, PieceResult]:
        """Have all ``wanted`` pieces done; returns their results."""
        changed = self._jobs.changed
        with changed:
            shared.want(wanted)
            self._jobs.note_progress(shared.task, shared.progress)
            changed.notify_all()
        while (piece := self._take(shared)) is not None:
            self.run_piece(shared, piece)
        if shared.error is not None:
            raise shared.error
        if shared.task.unwanted:
            raise stopped_error("order")
        return shared.results(wanted)

    def _take(self, shared: SharedOrder) -> OrderPiece | None:
        """The next piece; None when all are done. One that fails in another thread may come back."""
        with self._jobs.changed:
            while (piece := shared.take()) is None and shared.in_progress:
                self._jobs.changed.wait()
            return piece

    def _ask_again(self, shared: SharedOrder, part: OrderPart) -> bytes:
        """Ask the order's task again with the results, twice if need be: a worker that is killed must not cost them."""
        try:
            return self._ask(shared, part, (), self._limits_left(shared))
        except TRANSIENT_ERRORS:
            if shared.task.unwanted:
                raise
            return self._ask(shared, part, (), self._limits_left(shared))

    def _limits_left(self, shared: SharedOrder) -> TaskLimits:
        """The limits with the seconds that are left of the order. Raises `RunError` when none are."""
        seconds = shared.until - time.monotonic()
        if seconds <= 0:
            raise timeout_error("order", self._limits)
        return replace(self._limits, seconds=seconds)

    def _ask(
        self,
        shared: SharedOrder,
        part: OrderPart,
        programs: Iterable[str],
        limits: TaskLimits,
        progress: Progress | None = None,
    ) -> bytes:
        """Submit the task to a worker and wait for its answer."""
        task, payload = shared.task, payload_of(shared.order, programs, self._store, part)
        running = self._workers.submit("order", payload, limits, progress)
        del payload
        with self._jobs.lock:
            task.running.append(running)
        if task.unwanted or shared.error is not None:
            running.stop()
        try:
            return running.future.result()
        finally:
            with self._jobs.lock:
                task.running.remove(running)
